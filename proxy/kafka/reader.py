"""Readers outside of consumer groups. After a jump to another offset a consumer can return records
that it fetched before (librdkafka 2256). So `TopicReader` makes a new consumer for each range."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.kafka.access import RangeUnreadable
from proxy.kafka.ingress import NOT_IN_THE_LOG
from proxy.kafka.unreadable import UNREADABLE_BATCH, SkippedRanges, readable
from proxy.protocol.body import Message

AT_ONCE_RECORDS: Final = 500
POLL_S: Final = 0.5
ASK_TIMEOUT_S: Final = 8.0
SILENT_AT_MOST_S: Final = 10.0
"""If no broker answers for this long, the session ends. The next session recovers."""
RANGE_SILENT_AT_MOST_S: Final = 15.0
BEAT_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)

READER_CONFIG: Final[dict[str, str | int | bool]] = {
    "enable_auto_commit": False,
    "enable_partition_eof": True,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_poll_interval_ms": 86_400_000,
    "queued_max_messages_kbytes": 16_384,
    "fetch_wait_max_ms": 20,
}
"""`max_poll_interval_ms` is long, because a replay of dead letters at a low rate polls seldom.
`queued_max_messages_kbytes` bounds the queue of fetched records."""

Range = tuple[str, int]
"""Topic and partition."""


class RangesReading:
    """Reads ranges of several partitions together. `left` holds the unfinished ranges.

    `end_of_batch` returns the first offset after an unreadable batch. With `follows` the consumer
    stays assigned, and records after the ranges are returned, too.
    """

    def __init__(
        self,
        consumer: Consumer,
        ranges: Mapping[Range, range],
        now_s: Callable[[], float],
        end_of_batch: Callable[[str, int, int], int] | None = None,
        *,
        follows: bool = False,
        silent_at_most_s: float = RANGE_SILENT_AT_MOST_S,
    ) -> None:
        self.left = {place: span for place, span in ranges.items() if span}
        self._consumer, self._now_s, self._end_of_batch = consumer, now_s, end_of_batch
        self._follows, self._silent_at_most_s = follows, silent_at_most_s
        self._heard_s, self._is_alive = now_s(), False
        self._trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
        wanted = ranges if follows else self.left
        consumer.assign([TopicPartition(*at, span.start) for at, span in wanted.items()])

    def poll(self) -> Iterator[tuple[str, Message]]:
        """Yield new records with topics and readable headers. Raises RangeUnreadable, and
        KafkaException after silence."""
        first = self._consumer.poll(POLL_S)
        arrived: list[Any] = []
        if first is not None:
            arrived = [first, *self._consumer.consume(AT_ONCE_RECORDS, 0)]
        self._is_alive = False
        for message in arrived:
            place = message.topic(), message.partition()
            if message.error() is None:
                yield from self._take(place, message)
            elif place not in self.left:
                # This error is raised only if no record comes. It may be a missing right to the
                # group's coordinator, which a reader does not need.
                if message.topic() is None:
                    self._trouble = message.error()
            else:
                self._take_error(place, message)
        if self._is_alive:
            self._heard_s = self._now_s()
        elif self._now_s() - self._heard_s > self._silent_at_most_s:
            raise KafkaException(self._trouble)

    def _take(self, place: Range, message: Any) -> Iterator[tuple[str, Message]]:
        span, self._is_alive = self.left.get(place, range(0)), True
        if span and message.offset() >= span.stop - 1:
            self._leave(place)
        if self._follows or message.offset() in span:
            yield place[0], readable(message)

    def _take_error(self, place: Range, message: Any) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= self.left[place].stop:
                self._leave(place)
        elif error.code() in UNREADABLE_BATCH and self._end_of_batch is not None:
            end = self._end_of_batch(*place, message.offset())
            if end >= self.left[place].stop:
                self._leave(place)
            else:
                self._consumer.seek(TopicPartition(*place, end))
        elif error.fatal() or not error.retriable():
            raise RangeUnreadable(error, place[0])
        else:
            self._trouble = error

    def _leave(self, place: Range) -> None:
        self._is_alive = True
        del self.left[place]
        if self.left and not self._follows:
            self._consumer.pause([TopicPartition(*place)])


def offsets_of(consumer: Consumer, topic: str, partition: int) -> range:
    """Return the offsets of committed records that still exist."""
    place = TopicPartition(topic, partition)
    return range(*consumer.get_watermark_offsets(place, ASK_TIMEOUT_S, cached=False))


def first_offsets_since(
    consumer: Consumer, topic: str, partitions: Iterable[int], time_ms: int
) -> dict[int, int]:
    """Return the first offsets at or after a timestamp, by partition."""
    asked = [TopicPartition(topic, partition, time_ms) for partition in partitions]
    answers = consumer.offsets_for_times(asked, ASK_TIMEOUT_S) if asked else []
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


class TopicReader:
    """Reads one topic. `after_poll` is called after each poll, and may raise.
    `end_of_batch` returns the first offset after an unreadable batch."""

    def __init__(
        self,
        new_consumer: Callable[[], Consumer],
        topic: str,
        partitions: Sequence[int],
        now_s: Callable[[], float] = time.monotonic,
        after_poll: Callable[[], None] = lambda: None,
        end_of_batch: Callable[[str, int, int], int] | None = None,
    ) -> None:
        self._new_consumer, self._topic = new_consumer, topic
        self.partitions, self._now_s = tuple(partitions), now_s
        self._after_poll, self._end_of_batch = after_poll, end_of_batch

    def spans(self) -> dict[int, range]:
        with closing(self._new_consumer()) as consumer:
            return {one: offsets_of(consumer, self._topic, one) for one in self.partitions}

    def first_since(self, time_ms: int, spans: Mapping[int, range]) -> dict[int, int]:
        """Return the first offset at or after a timestamp, else the end."""
        with closing(self._new_consumer()) as consumer:
            found = first_offsets_since(consumer, self._topic, spans, time_ms)
        return {one: found.get(one, span.stop) for one, span in spans.items()}

    def records(self, partition: int, span: range) -> Iterator[Message]:
        """Yield the committed records within the span. Raises KafkaException."""
        if not span:
            return
        with closing(self._new_consumer()) as consumer:
            place = self._topic, partition
            reading = RangesReading(consumer, {place: span}, self._now_s, self._end_of_batch)
            while reading.left:
                for _topic, message in reading.poll():
                    yield message
                self._after_poll()


# In the time of a jump, some hundred kilobytes can be read (docs/operations/sizing.md). So small
# gaps are read, not jumped over.


class IngressLookup:
    """Random access to committed ingress records, for one thread. `heartbeat` is called during long
    waits."""

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
        """Return the existing, unskipped records at `offsets` (ascending). Jump over gaps of more
        than `gap` offsets. Raises KafkaException if no broker answers, or if a record cannot be
        read."""
        readable_ones = (at for at in offsets if self._skipped.first_in(partition, at, at) is None)
        wanted, found = deque(readable_ones), dict[int, Message]()
        self._is_idle = False
        self._heard_s = self._beat_s = self._now_s()
        while wanted:
            self._seek(partition, wanted[0], gap)
            if self._inbox or self._fill():
                self._scan(wanted, found, gap)
        return found

    def stop_if_idle(self) -> None:
        """Stop fetching if nothing was read since the last call."""
        if self._is_idle and self._made is not None and self._partition is not None:
            self._made.unassign()
            self._forget_position()
        self._is_idle = True

    def close(self) -> None:
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
        """Drop the consumer, so that a new one reads from the first wanted offset. The error of
        the new consumer shows whether this offset is in the batch at `base`, or has no record."""
        is_certain = self._assignments == 1 and self._position == wanted[0]
        self.close()
        if is_certain and base > wanted[0]:
            wanted.popleft()
        elif is_certain:
            raise KafkaException(error)

    def _check_passed_over(self, wanted: deque[int]) -> None:
        """Find out whether the first wanted record is gone, or the consumer returned records from
        before a jump. A new consumer has made no jump, so it leaves out only missing records."""
        if self._drop_deleted(wanted):
            return
        if self._assignments == 1:
            wanted.popleft()
            self._forget_position()
        else:
            self.close()

    def _drop_deleted(self, wanted: deque[int]) -> bool:
        assert self._partition is not None
        place = TopicPartition(self._topic, self._partition)
        start, _end = self._consumer.get_watermark_offsets(place, ASK_TIMEOUT_S, cached=False)
        if wanted[0] >= start:
            return False
        while wanted and wanted[0] < start:
            wanted.popleft()
        self._forget_position()
        return True
