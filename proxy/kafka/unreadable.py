"""Record batches and records that the client library cannot read, and ranges to skip."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from proxy.protocol.body import Headers, Message
from proxy.protocol.headers import SKIPPED, UNREADABLE, read_headers

log = structlog.get_logger(__name__)


NO_TIMESTAMP_MS = -1


class StandIn:
    """Stands in for a record, with `timer-unreadable` in place of its headers. Unlike the client
    library's record it can always be pickled."""

    __slots__ = ("_content", "_mark", "_offset", "_partition", "_timestamp")

    def __init__(
        self,
        partition: int,
        offset: int,
        mark: bytes | None,
        content: tuple[bytes | None, bytes | None] = (None, None),
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, NO_TIMESTAMP_MS),
    ) -> None:
        self._partition, self._offset, self._mark = partition, offset, mark
        self._content, self._timestamp = content, timestamp

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._content[0]

    def value(self) -> bytes | None:
        return self._content[1]

    def headers(self) -> Headers:
        return [(UNREADABLE, self._mark)]

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def error(self) -> None:
        return None


def readable(message: Message) -> Message:
    """Return the message, or a stand-in if its headers are unreadable.

    Clients other than Java's can write a header name that is not UTF-8. Decoding such headers twice
    crashes the process, so call this before anything else looks at them."""
    try:
        read_headers(message)
    except SystemError:
        content = message.key(), message.value()
        place = message.partition(), message.offset()
        return StandIn(*place, None, content, message.timestamp())
    return message


# The error of an unreadable batch has the batch's first offset, also if reading begins inside the
# batch. So a read from any offset shows whether this offset lies in the batch.

UNREADABLE_BATCH: Final = frozenset(
    {
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
    }
)
"""The batch is damaged, of an unknown kind, or too large to unpack."""
POLL_S: Final = 0.5
ANSWER_WITHIN_S: Final = 15.0


class UnreadableBatch(NamedTuple):
    """Offsets from `base` to `end` (exclusive), and the client library's error."""

    base: int
    end: int
    error: str


def unreadable_batch(
    new_consumer: Callable[[], Consumer], topic: str, partition: int, offset: int
) -> UnreadableBatch | None:
    """Return the batch that prevents reading from `offset`, or None. Raises KafkaException, also if
    no broker answers within ANSWER_WITHIN_S."""
    probe = _Probe(new_consumer, topic, partition)
    error = probe.read(offset)
    if error is None:
        return None
    base, said = error
    return UnreadableBatch(base, probe.end_of(base), said)


class _Probe:
    """Reads with new consumers only. A used consumer can return old records (librdkafka 2256)."""

    def __init__(self, new_consumer: Callable[[], Consumer], topic: str, partition: int) -> None:
        self._new_consumer, self._topic, self._partition = new_consumer, topic, partition

    def read(self, offset: int) -> tuple[int, str] | None:
        with closing(self._new_consumer()) as consumer:
            consumer.assign([TopicPartition(self._topic, self._partition, offset)])
            until_s = time.monotonic() + ANSWER_WITHIN_S
            trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
            while time.monotonic() < until_s:
                message = consumer.poll(POLL_S)
                error = None if message is None else message.error()
                if message is None or (error is not None and message.topic() is None):
                    trouble = error or trouble
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    return None
                elif error.code() in UNREADABLE_BATCH:
                    return message.offset() or 0, error.str()
                else:
                    raise KafkaException(error)
        raise KafkaException(trouble)

    def end_of(self, base: int) -> int:
        """Return the first offset after the batch. Most batches are small, so steps begin at 1."""
        log_end = self._log_end()
        inside, step = base, 1
        while (beyond := min(base + step, log_end)) < log_end and self._is_in(beyond, base):
            inside, step = beyond, 2 * step
        while beyond - inside > 1:
            middle = (inside + beyond) // 2
            if self._is_in(middle, base):
                inside = middle
            else:
                beyond = middle
        return beyond

    def _is_in(self, offset: int, base: int) -> bool:
        error = self.read(offset)
        return error is not None and error[0] == base

    def _log_end(self) -> int:
        with closing(self._new_consumer()) as consumer:
            place = TopicPartition(self._topic, self._partition)
            return int(consumer.get_watermark_offsets(place, ANSWER_WITHIN_S, cached=False)[1])


# Each offset that an operator skips becomes an empty record and then a dead letter
# (docs/operations/procedures.md#skip-a-batch-that-cannot-be-read).


class SkippedRanges:
    """Skipped ranges of an ingress topic, for one thread. Ranges may be added at any time."""

    def __init__(self) -> None:
        self._ranges: dict[int, dict[int, range]] = {}

    def add(self, partition: int, skipped: range) -> None:
        self._ranges.setdefault(partition, {}).setdefault(skipped.start, skipped)

    def first_in(self, partition: int, first: int, last: int) -> range | None:
        """Return the first range with an offset from `first` to `last`, inclusive."""
        ranges = self._ranges.get(partition, {}).values()
        found = (one for one in ranges if one.start <= last and first < one.stop)
        return min(found, key=lambda one: one.start, default=None)


class Skipping:
    """Skipped ranges that reading has reached, and stand-ins for their records. Records
    fetched from the start of such a range on are dropped. Records after it are fetched again."""

    def __init__(self, ranges: SkippedRanges) -> None:
        self._ranges = ranges
        self._met: dict[int, range] = {}

    @property
    def met(self) -> Sequence[int]:
        return list(self._met)

    def meet(self, partition: int, first: int, last: int) -> bool:
        """Begin with the first skipped range among these offsets. Return whether there is one."""
        found = self._ranges.first_in(partition, first, last)
        if found is not None:
            self._met.setdefault(partition, found)
        return found is not None

    def before(self, partition: int, records: list[Message]) -> list[Message]:
        met = self._met.get(partition)
        return records if met is None else [one for one in records if one.offset() < met.start]

    def records(
        self, partition: int, next_offset: int, most: int
    ) -> tuple[list[StandIn], int | None]:
        """Return the next stand-ins. At the end of a range, return the offset after it, too."""
        met = self._met[partition]
        first = max(met.start, next_offset)
        stop = min(met.stop, first + most)
        records = [StandIn(partition, offset, SKIPPED) for offset in range(first, stop)]
        if stop < met.stop:
            return records, None
        del self._met[partition]
        return records, max(met.stop, next_offset)

    def forget(self, partition: int) -> None:
        self._met.pop(partition, None)


STUCK_AFTER: Final = 3
"""A partition is stuck after this many failures at an offset. Fewer may be the network's fault."""
OVER_AFTER_S: Final = 60.0
"""After this time without failure the offset is considered readable."""
WARN_EVERY_S: Final = 60.0
REMEDY: Final = (
    "docs/operations/runbook.md#delayproxyshardunreadable: skip the batch with "
    "`kafka-delay-proxy skip --partition {partition} --offset {offset}`"
)


@dataclass(slots=True)
class FailingFetch:
    """The offset of a partition that cannot be fetched, and the error."""

    offset: int
    error: str
    failures: int
    failed_s: float
    warned_s: float | None = None


class FailingFetches:
    """Failing fetches by partition. Times are monotonic."""

    def __init__(self) -> None:
        self._failing: dict[int, FailingFetch] = {}

    @property
    def stuck(self) -> Mapping[int, FailingFetch]:
        found = self._failing.items()
        return {partition: one for partition, one in found if one.failures >= STUCK_AFTER}

    def failed(self, partition: int, offset: int, error: str, now_s: float) -> None:
        """Note a failed fetch. Log a stuck partition once a minute."""
        one = self._failing.get(partition)
        if one is None or one.offset != offset:
            one = self._failing[partition] = FailingFetch(offset, error, 0, now_s)
        one.error, one.failures, one.failed_s = error, one.failures + 1, now_s
        is_due = one.warned_s is None or now_s - one.warned_s >= WARN_EVERY_S
        if one.failures >= STUCK_AFTER and is_due:
            one.warned_s = now_s
            log.error(
                "the ingress cannot be read beyond this offset: later records stay unread",
                partition=partition,
                offset=offset,
                error=error,
                remedy=REMEDY.format(partition=partition, offset=offset),
            )

    def passed(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            one = self._failing.pop(partition, None)
            if one is not None and one.failures >= STUCK_AFTER:
                log.info("the ingress is read again", partition=partition, failed_at=one.offset)

    def expire(self, fetched: Iterable[int], now_s: float) -> None:
        """Forget partitions without a failure for OVER_AFTER_S."""
        old = {p for p, one in self._failing.items() if now_s - one.failed_s > OVER_AFTER_S}
        self.passed(old.intersection(fetched))
