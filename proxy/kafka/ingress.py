"""The ingress as a worker reads it."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import lt
from typing import Any, Final, Protocol, cast

import structlog
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from proxy.kafka.access import REFUSALS, refuse_beyond_limit
from proxy.kafka.group import leave_group
from proxy.kafka.unreadable import FailingFetch, FailingFetches, SkippedRanges, Skipping, readable
from proxy.protocol.body import Message

log = structlog.get_logger(__name__)


def resume_at(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Resume partitions at their next offsets. If all of a broker's partitions were paused,
    librdkafka 2.16.0 sleeps up to a second. A seek wakes it."""
    consumer.resume(list(places))
    for place in places:
        if place.offset >= 0:
            with suppress(KafkaException):
                consumer.seek(place)


# The client library returns each record once and in order. But if a rebalance pauses partitions
# during a batch, the library seems to return earlier records again (librdkafka 4686).


class ReadPositions:
    """The next offset of each owned partition."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._read_to: dict[int, int] = {}
        """For each rewound partition: its next offset before the rewind."""

    @property
    def offsets(self) -> Mapping[int, int]:
        return self._next

    def begin(self, starts: Mapping[int, int]) -> None:
        self._next.update(starts)

    def rewind(self, starts: Mapping[int, int]) -> None:
        again = {p: self._next[p] for p, at in starts.items() if at < self._next[p]}
        self._read_to.update(again)
        self._next.update(starts)

    def end(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)
            self._read_to.pop(partition, None)

    def reach(self, partition: int, end_offset: int) -> None:
        """Set the next offset to the partition's end. Only aborted records can lie in between."""
        if partition in self._read_to:
            raise _skipped(partition, self._next[partition], end_offset)
        if partition in self._next:
            self._next[partition] = max(self._next[partition], end_offset)

    def fresh(self, partition: int, records: list[Message]) -> list[Message]:
        """Return the records that were not returned before."""
        next_offset = self._next.get(partition)
        if next_offset is None:
            return records
        offsets = [record.offset() for record in records]
        if offsets[0] < next_offset or not all(map(lt, offsets, offsets[1:])):
            records = _without_repeats(partition, records, next_offset)
            offsets = [record.offset() for record in records]
        if offsets:
            if offsets[0] >= self._read_to.pop(partition, offsets[0] + 1):
                raise _skipped(partition, next_offset, offsets[0])
            self._next[partition] = offsets[-1] + 1
        return records


def _skipped(partition: int, wanted: int, given: int) -> KafkaException:
    why = f"partition {partition}: offset {wanted} was to be read next, but offset {given} arrived"
    return KafkaException(KafkaError(KafkaError._INCONSISTENT, why))  # noqa: SLF001


def _without_repeats(partition: int, records: Sequence[Message], next_offset: int) -> list[Message]:
    left: list[Message] = []
    at = next_offset
    for record in records:
        if record.offset() >= at:
            left.append(record)
            at = record.offset() + 1
    log.warning(
        "the client library returned records twice: second copies ignored",
        partition=partition,
        count=len(records) - len(left),
        first=min(record.offset() for record in records),
        next_offset=next_offset,
    )
    return left


# The group's consumer asks a hundred times a second for full batches, and cannot ask less often.
# While no record comes, this consumer is paused, and another consumer asks instead. The broker
# answers that consumer when a record or aborted transaction comes, or after half a second.
#
# A pause drops the batch being fetched, perhaps seconds of work. So the group's consumer is paused
# only when it has reached the end of each partition.

QUIET_S: Final = 2.0
LONGEST_S: Final = 30.0
MOMENT_S: Final = 0.25
"""The time between long polls in which the group's consumer fetches, updates partition ends and
keeps its connections in use."""


class LongPoll:
    """Waits in place of `consumer`, which is paused meanwhile. `new_listener` makes the
    consumer that waits. An error ends the wait, and `consumer` reports the error."""

    def __init__(
        self,
        consumer: Consumer,
        new_listener: Callable[[], Consumer],
        topic: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._new_listener = consumer, new_listener
        self._topic, self._now_s = topic, now_s
        self._made: Consumer | None = None
        self._paused: Sequence[TopicPartition] = ()
        self._offsets: Mapping[int, int] = {}
        self._ends: dict[int, int] = {}
        self._next_s = now_s() + QUIET_S

    def heard(self) -> None:
        self._next_s = self._now_s() + QUIET_S

    def reached(self, ends: Mapping[int, int]) -> None:
        self._ends.update(ends)

    def wait(
        self, wait_s: float, next_offsets: Callable[[], Mapping[int, int]], *, is_idle: bool
    ) -> float:
        """Wait for a record at `next_offsets`, or a higher end. Return the time left. A long
        poll begins if `is_idle` and the consumer has reached each partition's end."""
        began_s = self._now_s()
        if not self._paused and is_idle and began_s >= self._next_s:
            self._begin(next_offsets())
        if not self._paused:
            return wait_s
        if self._hears(began_s + wait_s):
            self.end()
            return max(0.0, wait_s - (self._now_s() - began_s))
        if began_s >= self._next_s:
            self.end()
            self._next_s = began_s + MOMENT_S
        return 0.0

    def end(self) -> None:
        """Let `consumer` fetch again. Call this before partitions come, go, or are paused."""
        if self._paused:
            self._listener.unassign()
            resume_at(self._consumer, self._paused)
            self._paused = ()
            self._ends.clear()
            self.heard()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
        self._made, self._paused = None, ()

    def _hears(self, until_s: float) -> bool:
        while True:
            message = cast(Message | None, self._listener.poll(max(0.0, until_s - self._now_s())))
            if message is None:
                return False
            error = cast(KafkaError | None, message.error())
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if not is_end or message.offset() > self._offsets.get(message.partition(), -1):
                return True

    def _begin(self, offsets: Mapping[int, int]) -> None:
        if any(self._ends.get(partition) != at for partition, at in offsets.items()):
            return
        places = [TopicPartition(self._topic, p, at) for p, at in offsets.items()]
        if places:
            self._consumer.pause(places)
            self._paused, self._offsets = places, dict(offsets)
            self._listener.assign(places)
        self._next_s = self._now_s() + LONGEST_S

    @property
    def _listener(self) -> Consumer:
        if self._made is None:
            self._made = self._new_listener()
        return self._made


# The consumer never commits. It is a static member of a cooperative-sticky group, so a worker
# keeps its partitions in a restart within the session time-out.

FETCH_RECORDS: Final = 2_000
ASK_TIMEOUT_S: Final = 5.0
STABLE_WITHIN_S: Final = 60.0
"""Committed offsets are awaited this long. An open transaction of a predecessor can hide them."""
SUSPECT_AFTER_S: Final = 30.0
HANGING: Final = (
    "either the broker is away, or a transaction with committed offsets stays open: "
    "docs/operations/runbook.md says how to find and abort it"
)

NOT_IN_THE_LOG: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
THE_END: Final = frozenset(
    {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID, NOT_IN_THE_LOG, *REFUSALS}
)
"""Reading ends after these errors, even if the client library does not call them fatal. A member
can fence itself after a broker's restart. An offset that the log lacks is reported by recovery."""


class Owner(Protocol):
    """Called from `fetch` when the group assigns, revokes, or loses partitions."""

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        """Return the first offset to read for each new partition."""

    def hand_over(self, partitions: list[int]) -> None:
        """Finish with these partitions."""

    def lose(self, partitions: list[int]) -> None:
        """Drop these partitions, which another worker may own already."""


@dataclass(slots=True)
class Fetched:
    """Records and reached ends by partition. `append_ms` is the broker's newest timestamp."""

    records: defaultdict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, int] = field(default_factory=dict)
    append_ms: int = -1

    def add(self, messages: Iterable[Message]) -> list[Message]:
        records, errors = self.records, []
        for message in messages:
            if message.error() is not None:
                errors.append(message)
            else:
                records[message.partition()].append(readable(message))
        return errors

    def note_append_time(self) -> None:
        for bucket in self.records.values():
            kind, timestamp_ms = bucket[-1].timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                self.append_ms = max(self.append_ms, timestamp_ms)


class Ingress:
    """The consumer of the ingress topic, for one thread. `new_listener` is for `LongPoll`."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        new_listener: Callable[[], Consumer],
        now_s: Callable[[], float] = time.monotonic,
        skipped: SkippedRanges | None = None,
    ) -> None:
        self._consumer, self._now_s = consumer, now_s
        self._long_poll = LongPoll(consumer, new_listener, topic, now_s)
        self._positions = ReadPositions()
        self._failing, self._skipping = FailingFetches(), Skipping(skipped or SkippedRanges())
        self._paused: set[int] = set()
        self._group_metadata: object = None
        self.topic = topic

    def join(self, owner: Owner, joined: Callable[[str], None] | None = None) -> None:
        """Join the group. `fetch` calls `owner`, and `joined` with the member id."""

        def on_assign(_: Consumer, assigned: list[TopicPartition]) -> None:
            self.group_moved()
            self._long_poll.end()
            if joined is not None:
                joined(self._consumer.memberid() or "")
            offsets = owner.take_over([p.partition for p in assigned])
            self._positions.begin(offsets)
            starts = [TopicPartition(self.topic, p, at) for p, at in offsets.items()]
            self._consumer.incremental_assign(starts)

        def on_revoke(_: Consumer, revoked: list[TopicPartition]) -> None:
            self._long_poll.end()
            owner.hand_over([p.partition for p in revoked])
            self.group_moved()
            self._end(revoked)
            self._consumer.incremental_unassign(revoked)

        def on_lost(_: Consumer, lost: list[TopicPartition]) -> None:
            self._long_poll.end()
            owner.lose([p.partition for p in lost])
            self._end(lost)
            self._consumer.incremental_unassign(lost)

        self._consumer.subscribe(
            [self.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def fetch(
        self,
        wait_s: float,
        most: int = FETCH_RECORDS,
        *,
        is_busy: bool = False,
        is_idle: bool = False,
    ) -> Fetched:
        """Wait for a first record, and return it with up to `most` others. If `is_busy`, wait for
        `most` records or until `wait_s` is over. `is_idle`: the caller waits for nothing else."""
        fetched = Fetched()
        if self._skippable():
            is_idle, wait_s = False, 0.0
        wait_s = self._long_poll.wait(wait_s, self._wanted, is_idle=is_idle)
        wait = self._consumer.consume if is_busy else self._wait_for_first
        arrived: list[Any] = wait(most, wait_s)
        if arrived:
            for message in fetched.add(arrived):
                self._note_error(message, fetched)
            self._leave_out_skipped(fetched)
            fetched.note_append_time()
            if fetched.records:
                self._long_poll.heard()
            self._failing.passed([*fetched.records, *fetched.ends])
            for partition, records in fetched.records.items():
                fetched.records[partition] = self._positions.fresh(partition, records)
            for partition, end in fetched.ends.items():
                self._positions.reach(partition, end)
            self._long_poll.reached(fetched.ends)
        self._skip(fetched, most)
        return fetched

    def committed(self, partitions: Iterable[int]) -> list[TopicPartition]:
        """Return committed offsets with metadata. Wait while an earlier transaction is open."""
        asked = [TopicPartition(self.topic, p) for p in partitions]
        started = time.monotonic()
        while True:
            try:
                answers = self._consumer.committed(asked, ASK_TIMEOUT_S)
                errors = [a.error for a in answers if a.error is not None]
                if not errors:
                    return answers
                raise KafkaException(errors[0])
            except KafkaException as raised:
                waited_s = time.monotonic() - started
                if waited_s > STABLE_WITHIN_S:
                    raise
                error = raised.args[0].str()
                if waited_s < SUSPECT_AFTER_S:
                    log.info("waiting for committed offsets", error=error)
                else:
                    log.warning("waiting for committed offsets", error=error, hint=HANGING)

    def stuck(self) -> Mapping[int, FailingFetch]:
        self._failing.expire(self._fetched(), self._now_s())
        return self._failing.stuck

    def newest(self, partition: int) -> int:
        """Return the high watermark that the last fetch brought, or -1 before the first fetch."""
        place = TopicPartition(self.topic, partition)
        return self._consumer.get_watermark_offsets(place, cached=True)[1]

    def pause(self, partitions: Collection[int]) -> None:
        self._long_poll.end()
        self._paused.update(partitions)
        self._consumer.pause([TopicPartition(self.topic, p) for p in partitions])

    def resume(self, partitions: Collection[int]) -> None:
        self._long_poll.end()
        self._paused.difference_update(partitions)
        next_offsets = self._positions.offsets
        places = [TopicPartition(self.topic, p, next_offsets.get(p, -1)) for p in partitions]
        resume_at(self._consumer, places)

    def rewind(self, offsets: Mapping[int, int]) -> None:
        """Read partitions again from earlier offsets. Raises KafkaException."""
        self._long_poll.end()
        self._positions.rewind(offsets)
        for partition, offset in offsets.items():
            self._skipping.forget(partition)  # a skip would jump over the records to read again
            self._consumer.seek(TopicPartition(self.topic, partition, offset))

    def offset(self, partition: int, next_offset: int, metadata: str) -> TopicPartition:
        return TopicPartition(self.topic, partition, next_offset, metadata)

    def group_metadata(self) -> object:
        """Return the metadata that fence a dropped worker (KIP-447). They are cached, because each
        call waits for another thread of the client library. The broker refuses old metadata."""
        if self._group_metadata is None:
            self._group_metadata = self._consumer.consumer_group_metadata()
        return self._group_metadata

    def group_moved(self) -> None:
        """Drop the cached metadata for a new generation."""
        self._group_metadata = None

    def leave(self) -> None:
        """Hand over partitions, and leave the group so that others take them over at once."""
        leave_group(self._consumer)

    def close(self) -> None:
        """Hand over partitions. The group keeps the place of a static member that has not left."""
        self._long_poll.close()
        self._consumer.close()

    def _wanted(self) -> dict[int, int]:
        offsets, left_out = self._positions.offsets, self._paused | self._failing.stuck.keys()
        return {partition: at for partition, at in offsets.items() if partition not in left_out}

    def _fetched(self) -> Collection[int]:
        return self._positions.offsets.keys() - self._paused

    def _end(self, places: Iterable[TopicPartition]) -> None:
        partitions = [place.partition for place in places]
        self._positions.end(partitions)
        self._failing.passed(partitions)
        for partition in partitions:
            self._skipping.forget(partition)

    def _skippable(self) -> list[int]:
        fetched = self._fetched() if self._skipping.met else ()
        return [partition for partition in self._skipping.met if partition in fetched]

    def _leave_out_skipped(self, fetched: Fetched) -> None:
        for partition, records in list(fetched.records.items()):
            self._meets_skipped(partition, records[0].offset(), records[-1].offset())
            if kept := self._skipping.before(partition, records):
                fetched.records[partition] = kept
            else:
                del fetched.records[partition]
        for partition in self._skipping.met:
            fetched.ends.pop(partition, None)

    def _meets_skipped(self, partition: int, first: int, last: int) -> bool:
        is_owned = partition in self._positions.offsets
        return is_owned and self._skipping.meet(partition, first, last)

    def _skip(self, fetched: Fetched, most: int) -> None:
        for partition in self._skippable():
            next_offset = self._positions.offsets[partition]
            records, fetch_from = self._skipping.records(partition, next_offset, most)
            if records:
                fresh = self._positions.fresh(partition, cast(list[Message], records))
                fetched.records[partition] += fresh
            if fetch_from is not None:
                self._failing.passed([partition])
                resume_at(self._consumer, [TopicPartition(self.topic, partition, fetch_from)])

    def _wait_for_first(self, most: int, wait_s: float) -> list[Any]:
        first = self._consumer.poll(wait_s)
        return [] if first is None else [first, *self._consumer.consume(most, 0)]

    def _note_error(self, message: Message, fetched: Fetched) -> None:
        error = cast(KafkaError, message.error())
        if error.code() == KafkaError._PARTITION_EOF:
            fetched.ends[message.partition()] = message.offset()
            return
        refuse_beyond_limit(error)
        if error.fatal() or error.code() in THE_END:
            raise KafkaException(error)
        partition, offset = message.partition(), cast(int | None, message.offset())
        if offset is None or partition not in self._positions.offsets:
            log.warning("ingress not readable for now", error=error.str())
        elif not self._meets_skipped(partition, offset, offset):
            self._failing.failed(partition, offset, error.str(), self._now_s())
