"""Reads single records of the ingress again, by offset (setting `bodies: kafka`).

A consumer of its own, which never joins the group. Jumping to an offset costs as much as reading
on through some hundred kilobytes (docs/operations/sizing.md), so small gaps are read through.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.kafka.ingress.ingress import NOT_IN_THE_LOG
from proxy.kafka.ingress.unreadable import UNREADABLE_BATCH, SkippedRanges, readable
from proxy.protocol.body import Message

AT_ONCE_RECORDS: Final = 1_000
POLL_S: Final = 0.5
SILENT_AT_MOST_S: Final = 10.0
"""Without any record for so long the session ends and recovers, as after any broker trouble."""
ASK_TIMEOUT_S: Final = 5.0
BEAT_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)


class IngressLookup:
    """Random access to committed records of the ingress topic. All calls come from one thread.

    The consumer is made when first needed. `heartbeat` is called while the broker is waited for,
    and while much is read.
    """

    def __init__(
        self,
        new_consumer: Callable[[], Consumer],
        topic: str,
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
        skipped: SkippedRanges | None = None,
    ) -> None:
        self._new_consumer, self._topic = new_consumer, topic
        self._heartbeat, self._now_s = heartbeat, now_s
        self._skipped = skipped or SkippedRanges()
        self._made: Consumer | None = None
        self._assignments = 0
        self._partition: int | None = None
        self._position = 0
        self._inbox: deque[Message] = deque()
        self._is_idle = True
        self._heard_s = self._beat_s = 0.0
        self._last_error = KafkaError(KafkaError._TIMED_OUT, "no ingress record could be read back")

    def read(self, partition: int, offsets: Sequence[int], gap: int) -> dict[int, Message]:
        """The records at `offsets` (ascending) by offset, without those that are there no more or
        were skipped.

        A gap of up to so many offsets is read through. Raises KafkaException when nothing comes
        for SILENT_AT_MOST_S, and where a record cannot be read.
        """
        readable_ones = (at for at in offsets if self._skipped.holding(partition, at) is None)
        wanted, found = deque(readable_ones), dict[int, Message]()
        self._is_idle = False
        self._heard_s = self._beat_s = self._now_s()
        while wanted:
            self._seek(partition, wanted[0], gap)
            if self._inbox or self._fill():
                self._scan(wanted, found, gap)
        return found

    def stop_if_idle(self) -> None:
        """Called now and then: fetch no more where nothing was read since the last call."""
        if self._is_idle and self._made is not None and self._partition is not None:
            self._made.unassign()
            self._forget_position()
        self._is_idle = True

    def close(self) -> None:
        """Give the consumer up; the next read makes another."""
        if self._made is not None:
            self._made.close()
        self._made, self._assignments = None, 0
        self._forget_position()

    @property
    def _consumer(self) -> Consumer:
        if self._made is None:
            self._made = self._new_consumer()
        return self._made

    def _seek(self, partition: int, offset: int, gap: int) -> None:
        """Stand at `offset` or so little before it that reading on is cheaper than a jump."""
        if partition == self._partition and 0 <= offset - self._position <= gap:
            return
        self._forget_position()
        self._consumer.assign([TopicPartition(self._topic, partition, offset)])
        self._assignments += 1
        self._partition, self._position = partition, offset

    def _forget_position(self) -> None:
        self._partition = None
        self._inbox.clear()

    def _fill(self) -> bool:
        """Wait for something to arrive; False when nothing has."""
        first = self._consumer.poll(POLL_S)
        now_s = self._now_s()
        if first is None or now_s - self._beat_s >= BEAT_EVERY_S:
            self._beat_s = now_s
            self._heartbeat()
        if first is None:
            if self._now_s() - self._heard_s > SILENT_AT_MOST_S:
                self.close()
                raise KafkaException(self._last_error)
            return False
        more: list[Any] = self._consumer.consume(AT_ONCE_RECORDS, 0)
        self._inbox.extend((cast(Message, first), *more))
        return True

    def _scan(self, wanted: deque[int], found: dict[int, Message], gap: int) -> None:
        """Take what is wanted from what has arrived, until a jump is due."""
        while self._inbox and wanted and wanted[0] - self._position <= gap:
            message = self._inbox.popleft()
            error = cast(KafkaError | None, message.error())
            if error is not None:
                self._take_error(error, message.offset() or 0, wanted)
                continue
            offset = message.offset()
            self._heard_s = self._now_s()
            self._position = offset + 1
            if offset == wanted[0]:
                found[offset] = readable(message)
                wanted.popleft()
            elif offset > wanted[0]:
                self._check_passed_over(wanted)

    def _take_error(self, error: KafkaError, offset: int, wanted: deque[int]) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if offset > wanted[0]:
                self._check_passed_over(wanted)
        elif error.code() == NOT_IN_THE_LOG:
            if not self._drop_deleted(wanted):
                raise KafkaException(error)
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() in UNREADABLE_BATCH:
            self._jump_over(error, offset, wanted)
        else:
            self._last_error = error
            log.warning("ingress not readable for now", error=error.str())

    def _jump_over(self, error: KafkaError, base: int, wanted: deque[int]) -> None:
        """The batch that begins at `base` cannot be read: go to the first wanted offset itself,
        with a new consumer. That one says for certain whether it lies in the batch, or there is no
        record at it and the batch is what comes next."""
        is_certain = self._assignments == 1 and self._position == wanted[0]
        self.close()
        if is_certain and base > wanted[0]:
            wanted.popleft()
        elif is_certain:
            raise KafkaException(error)

    def _check_passed_over(self, wanted: deque[int]) -> None:
        """The first wanted record was passed over: is it gone, or is what came out of date?

        What was fetched before a jump can come after it (librdkafka issue 2256). A new consumer's
        first assignment has nothing behind it: what that passes over is not there.
        """
        if self._drop_deleted(wanted):
            return
        if self._assignments == 1:
            wanted.popleft()
            self._forget_position()
        else:
            self.close()

    def _drop_deleted(self, wanted: deque[int]) -> bool:
        """Leave out what lies below the start of the log, as the broker says; whether any did."""
        assert self._partition is not None
        place = TopicPartition(self._topic, self._partition)
        start, _end = self._consumer.get_watermark_offsets(place, ASK_TIMEOUT_S, cached=False)
        if wanted[0] >= start:
            return False
        while wanted and wanted[0] < start:
            wanted.popleft()
        self._forget_position()
        return True
