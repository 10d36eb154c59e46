"""The topics of a trace, read in bounded memory."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException

from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin
from proxy.errors import BrokerRefused
from proxy.kafka.access import (
    Connection,
    RangeUnreadable,
    TopicUnknown,
    client_config,
    grant,
    topic_rights,
)
from proxy.kafka.reader import (
    READER_CONFIG,
    RangesReading,
    first_offsets_since,
    offsets_of,
)
from proxy.kafka.unreadable import unreadable_batch
from proxy.lineage.histories import NotAllRead, TimeSpan, TracedRecord, Visit
from proxy.protocol.position import NEVER_MS

GROUP: Final = "kafka-delay-proxy-trace"
"""The client library requires a group. No consumer joins it or commits."""

Ranges = dict[tuple[str, int], range]

Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Takes a text and the number of records to read. Yields a function that takes the number of
records read so far."""


@contextmanager
def silent(_text: str, _total: int) -> Iterator[Callable[[int], None]]:
    """Show no progress."""
    yield lambda _: None


class ReadRefused(BrokerRefused):
    """The user may not read a topic that the trace needs."""

    def __init__(self, topic: str, settings: Settings) -> None:
        self.topic = topic
        super().__init__(
            f"The broker at {settings.bootstrap_servers} does not let the user read the topic "
            f"{topic}. The trace needs it.",
            grant(topic_rights(topic, "Read"), settings),
        )


class KafkaTopics:
    """The topics of a trace on a broker. Raises NotAllRead, KafkaException, or a ProxyError.

    A trace ends after `timeout_s`, or when `most_records` were looked at. `after_poll` is called
    after every few hundred records. With `skips_refused`, topics that the user may not read are
    skipped, and `unread` names them.
    """

    def __init__(
        self,
        settings: Settings,
        timeout_s: float,
        most_records: int | None = None,
        progress: Progress = silent,
        after_poll: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
        *,
        skips_refused: bool = False,
    ) -> None:
        self._settings, self._connection = settings, Connection(settings)
        self._config = client_config(settings, group_id=GROUP, **READER_CONFIG)
        self._progress, self._after_poll, self._now_s = progress, after_poll, now_s
        self._ends_s, self._most_records = now_s() + timeout_s, most_records
        self._passed, self._skips_refused = 0, skips_refused
        self._refused: dict[str, ReadRefused] = {}
        self._partitions: dict[str, int] = {}

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions, 0 for a missing topic."""
        if topic not in self._partitions:
            try:
                described = self._connection.describe_topic(topic, "Read")
                self._partitions[topic] = len(described.partitions)
            except TopicUnknown:
                self._partitions[topic] = 0
            except BrokerRefused as refused:
                if "TOPIC_AUTHORIZATION_FAILED" in refused.found:
                    raise ReadRefused(topic, self._settings) from None
                raise
        return self._partitions[topic]

    def offsets(self, topic: str, partition: int) -> range:
        """Return the range of offsets that can be read. It ends before the first open
        transaction."""
        with self._consumer(topic) as consumer:
            return offsets_of(consumer, topic, partition)

    def at(self, place: Origin) -> TracedRecord | None:
        """Return the record at a place, or None."""
        topic, partition, offset = place
        found: list[TracedRecord] = []

        def keep(record: TracedRecord) -> bool:
            found.append(record)
            return True

        if partition < self.partitions_of(topic):
            with self._consumer(topic) as consumer:
                if offset in offsets_of(consumer, topic, partition):
                    self._read(consumer, {(topic, partition): range(offset, offset + 1)}, keep)
        return found[0] if found else None

    def search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        """Read spans in parallel until `visit` returns True. `visit` may get a record twice."""
        while left := [span for span in spans if span.topic not in self._refused]:
            try:
                with self._consumer(*(span.topic for span in left)) as consumer:
                    ranges: Ranges = {}
                    for span in left:
                        with self._naming(span.topic):
                            ranges |= self._ranges(consumer, span)
                    if ranges:
                        self._read(consumer, ranges, visit)
                return
            except ReadRefused as refused:
                if not self._skips_refused:
                    raise
                self._refused[refused.topic] = refused

    def unread(self) -> list[str]:
        """Return a sentence about each skipped topic."""
        return [f"What lies in {topic}. {why}" for topic, why in self._refused.items()]

    @contextmanager
    def _consumer(self, *topics: str) -> Iterator[Consumer]:
        self._check_bounds(topics)
        with self._naming(topics[0]), closing(Consumer(self._config)) as consumer:
            yield consumer

    @contextmanager
    def _naming(self, topic: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                named = error.topic if isinstance(error, RangeUnreadable) else topic
                raise ReadRefused(named, self._settings) from None
            raise

    def _ranges(self, consumer: Consumer, span: TimeSpan) -> Ranges:
        topic, numbers = span.topic, span.partitions
        if numbers is None:
            numbers = tuple(range(self.partitions_of(topic)))
        parts: Ranges = {}
        starts, stops = dict[int, int](), dict[int, int]()
        if span.from_ms is not None:
            starts = first_offsets_since(consumer, topic, numbers, _possible(span.from_ms))
        if span.until_ms is not None:
            stops = first_offsets_since(consumer, topic, numbers, _possible(span.until_ms))
        for number in numbers:
            there = offsets_of(consumer, topic, number)
            start = there.start if span.from_ms is None else starts.get(number, there.stop)
            parts[topic, number] = range(start, stops.get(number, there.stop))
        return {place: offsets for place, offsets in parts.items() if offsets}

    def _read(self, consumer: Consumer, ranges: Ranges, visit: Visit) -> None:
        topics, passed = ", ".join(sorted({topic for topic, _ in ranges})), 0
        reading = RangesReading(consumer, ranges, self._now_s, self._end_of_batch)
        with self._progress(f"reading {topics}", sum(map(len, ranges.values()))) as show:
            while reading.left:
                self._check_bounds(sorted({topic for topic, _ in reading.left}))
                for topic, message in reading.poll():
                    passed += 1
                    self._passed += 1
                    record = TracedRecord(
                        Origin(topic, message.partition(), message.offset()),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        message.headers() or [],
                    )
                    if visit(record):
                        return
                show(passed)
                self._after_poll()

    def _end_of_batch(self, topic: str, partition: int, base: int) -> int:
        """Return the offset after an unreadable batch, or `base` if the batch can be read."""
        batch = unreadable_batch(lambda: Consumer(self._config), topic, partition, base)
        return base if batch is None else batch.end

    def _check_bounds(self, topics: Sequence[str]) -> None:
        if self._now_s() > self._ends_s:
            raise NotAllRead(topics, "The time limit was reached")
        if self._most_records is not None and self._passed >= self._most_records:
            raise NotAllRead(topics, f"{self._passed:,} records were read")


def _possible(time_ms: int) -> int:
    return min(max(0, time_ms), NEVER_MS)
