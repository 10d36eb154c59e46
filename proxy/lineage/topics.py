"""The topics that a trace reads."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.config.settings import Settings
from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.dead_letters.topics import READER_CONFIG
from proxy.errors import BrokerRefused, ProxyError
from proxy.kafka.access import Connection, Right, TopicUnknown, client_config, grant
from proxy.kafka.ingress.unreadable import UNREADABLE_BATCH, unreadable_batch
from proxy.lineage.chain.asked import Asked, read_asked
from proxy.lineage.chain.link import Trace
from proxy.lineage.chain.matching import came_from
from proxy.lineage.chain.traced_record import NotAllRead, TimeSpan, Topics, TracedRecord, Visit
from proxy.protocol.headers import FIRST_ORIGIN, HOP_FROM, ORIGIN, UNREADABLE, read_headers
from proxy.protocol.position import NEVER_MS
from proxy.protocol.request_reader import RequestReader

# Ingress records of a trace, each read once; and the way back to the first of a chain.

MOST_STEPS_BACK = 10_000


class Ingested(NamedTuple):
    """An ingress record, without its value, and what it asks for."""

    record: TracedRecord
    asked: Asked


class Ancestry(NamedTuple):
    """The first of a chain, and which record each of those that were rewritten became.

    unknown: what of the way back cannot be told.
    """

    root: Origin
    successors: dict[Origin, Origin]
    unknown: list[str]


class IngressRecords:
    """Reads them from `topics`; what they ask for is said by `reader`."""

    def __init__(self, topics: Topics, ingress: str, reader: RequestReader) -> None:
        self._topics, self._ingress, self._reader = topics, ingress, reader
        self._read: dict[Origin, Ingested | None] = {}

    def read(self, origin: Origin) -> Ingested | None:
        """None where it is not there (any more)."""
        if origin not in self._read:
            record = self._topics.at(origin)
            self._read[origin] = None
            if record is not None:
                asked = read_asked(record, self._reader)
                self._read[origin] = Ingested(record.without_value(), asked)
        return self._read[origin]

    def ancestry(self, origin: Origin) -> Ancestry:
        """The way back from a record to the first of its chain, one record after the other."""
        found = Ancestry(origin, {}, [])
        seen = {origin}
        while (before := self._before(found)) is not None and before not in seen:
            seen.add(before)
            found = found._replace(root=before)
            if len(seen) > MOST_STEPS_BACK:
                found.unknown.append(f"What was before {before}: it is too long a way back.")
                break
        return found

    def _before(self, found: Ancestry) -> Origin | None:
        """The ingress record before the first that is known by now."""
        here = self.read(found.root)
        before = None if here is None else came_from(here.record)
        if here is None or before is None:
            return None
        if here.record.header(HOP_FROM) is not None:
            return self._rewritten(here.record, before, found)
        if before.topic == self._ingress:
            return before
        return self._delivered(before, found)

    def _rewritten(self, record: TracedRecord, before: Origin, found: Ancestry) -> Origin:
        """A half message goes on from its commit, and is named by the successor as the first."""
        first = read_origin(record.text(FIRST_ORIGIN) or "")
        ingested = self.read(before)
        if ingested is not None and ingested.asked.kind == "commit" and first is not None:
            before = first
        found.successors[before] = record.place
        if ingested is None and first not in {None, before}:
            found.unknown.append(f"What lies between {first}, the first origin, and {before}.")
        return before

    def _delivered(self, place: Origin, found: Ancestry) -> Origin | None:
        """The ingress record that was delivered to a place where a consumer failed at it."""
        record = self._topics.at(place)
        if record is None:
            found.unknown.append(f"What was before the retry: {place} is not there any more.")
            return None
        return read_origin(record.text(ORIGIN) or "")


# The ingress record that a person means, or why there is none.


class NoSuchRecord(ProxyError):
    """No record lies at the place that a person named, or none that the proxy knows of."""


def find_beginning(topics: Topics, named: Origin, ingress: str, bootstrap: str) -> Origin:
    """The ingress record at `named`; of a delivery or a dead letter, the one that it was made of.

    An ingress record is not read here. It may be deleted, or in a batch that cannot be read; its
    outcome may still be there. Raises TopicUnknown, NoSuchRecord.
    """
    topic, partition, offset = named
    count = topics.partitions_of(topic)
    if not count:
        raise TopicUnknown(topic, bootstrap)
    if partition >= count:
        raise NoSuchRecord(f"{topic} has no partition {partition}: it has 0 to {count - 1}.")
    there = topics.offsets(topic, partition)
    if topic == ingress and offset < there.stop:
        return named
    record = topics.at(named)
    if record is None:
        raise NoSuchRecord(*_nothing_at(named, there))
    origin = read_origin(record.text(ORIGIN) or "")
    if origin is None or origin.topic != ingress:
        raise NoSuchRecord(
            f"{named} was not made of a record of {ingress}: its header {ORIGIN} "
            + ("is missing." if origin is None else f"is {origin}."),
            "Name the proxy's settings file with --config if its ingress topic has another name.",
        )
    return origin


def refuse_untold(trace: Trace, there: range, outcomes: str) -> None:
    """Raises NoSuchRecord where nothing at all is known of the record that was asked for."""
    if any(link.record or link.ended_ms is not None for link in trace.links) or not trace.is_whole:
        return
    asked = trace.asked
    if asked.offset in there:
        raise NoSuchRecord(*_nothing_at(asked, there))
    raise NoSuchRecord(
        f"{asked} cannot be read any more: partition {asked.partition} of {asked.topic} begins at "
        f"offset {there.start}, and no outcome in {outcomes} names it.",
        "It was delivered, or its outcome has been deleted as well. Trace the record that was "
        "delivered (its place in the target topic) if you have it.",
    )


def _nothing_at(named: Origin, there: range) -> tuple[str, str]:
    at = f"No record lies at {named}"
    if named.offset in there:
        why = "an aborted transaction had it, or Kafka's own records of transactions"
        return f"{at} that can be read: {why}.", "The next offset may be meant."
    if not there:
        return f"{at}: partition {named.partition} of {named.topic} is empty.", ""
    holds = f"holds offsets {there.start} to {there.stop - 1}"
    return (
        f"{at}: partition {named.partition} of {named.topic} {holds}.",
        "Below these, retention has deleted it; above, it is not written, or not committed yet.",
    )


# Reads the topics of a trace: committed records, in no group, with a bound on memory.

GROUP: Final = "kafka-delay-proxy-trace"
"""Never joined and nothing is committed; the client library wants a name."""
AT_ONCE_RECORDS: Final = 500
POLL_S: Final = 0.2
ASK_TIMEOUT_S: Final = 8.0
SILENT_AT_MOST_S: Final = 15.0

Ranges = dict[tuple[str, int], range]
"""Offsets to be read, by topic and partition."""

Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""What is read and how many records that is; within it, what is told how many were passed."""


class Bounds(NamedTuple):
    """How long a trace may read, and how many records it may look at in all; None: any number."""

    timeout_s: float
    most_records: int | None = None


@contextmanager
def silent(_text: str, _total: int) -> Iterator[Callable[[int], None]]:
    """Shows no progress."""
    yield lambda _: None


class ReadRefused(BrokerRefused):
    """The user may not read a topic that the trace needs."""

    def __init__(self, topic: str, settings: Settings) -> None:
        self.topic = topic
        super().__init__(
            f"The broker at {settings.bootstrap_servers} does not let this user read the topic "
            f"{topic}, which the trace needs.",
            grant([Right("Read", "topic", topic)], settings),
        )


class KafkaTopics:
    """`traced_record.Topics` on a broker.

    Each search has a consumer of its own: after a jump, what was fetched before it can still come
    (librdkafka issue 2256). Raises KafkaException as well, also when nothing comes for
    SILENT_AT_MOST_S. `after_poll` is called after each few hundred records. skips_refused: what the
    user may not search is left out, and told by `unread`.
    """

    def __init__(
        self,
        settings: Settings,
        bounds: Bounds,
        progress: Progress = silent,
        after_poll: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
        *,
        skips_refused: bool = False,
    ) -> None:
        self._settings, self._connection = settings, Connection(settings)
        self._config = client_config(settings, group_id=GROUP, **READER_CONFIG)
        self._progress, self._after_poll, self._now_s = progress, after_poll, now_s
        self._ends_s, self._most_records = now_s() + bounds.timeout_s, bounds.most_records
        self._passed, self._skips_refused = 0, skips_refused
        self._refused: dict[str, ReadRefused] = {}
        self._partitions: dict[str, int] = {}

    def partitions_of(self, topic: str) -> int:
        """How many the topic has; 0 when it does not exist."""
        if topic not in self._partitions:
            self._partitions[topic] = self._ask_partitions(topic)
        return self._partitions[topic]

    def offsets(self, topic: str, partition: int) -> range:
        """From the first offset still there to the end of what is committed."""
        with self._consumer(topic) as consumer, self._naming(topic):
            return _offsets(consumer, topic, partition)

    def at(self, place: Origin) -> TracedRecord | None:
        """The record at a place; None when nothing that can be read lies there (any more)."""
        topic, partition, offset = place
        found: list[TracedRecord] = []

        def keep(record: TracedRecord) -> bool:
            found.append(record)
            return True

        if partition < self.partitions_of(topic):
            with self._consumer(topic) as consumer, self._naming(topic):
                if offset in _offsets(consumer, topic, partition):
                    self._read(consumer, {(topic, partition): range(offset, offset + 1)}, keep)
        return found[0] if found else None

    def search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        """Read these, all at once, until `visit` is content or each has come to its end."""
        while left := [span for span in spans if span.topic not in self._refused]:
            try:
                self._search(left, visit)
            except ReadRefused as refused:
                if not self._skips_refused:
                    raise
                self._refused[refused.topic] = refused
            else:
                return

    def unread(self) -> list[str]:
        """What could not be searched, in sentences."""
        return [f"What lies in {topic}. {why}" for topic, why in self._refused.items()]

    def _search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        with self._consumer(*(span.topic for span in spans)) as consumer:
            ranges: Ranges = {}
            for span in spans:
                with self._naming(span.topic):
                    ranges |= self._ranges(consumer, span)
            if ranges:
                self._read(consumer, ranges, visit)

    def _ask_partitions(self, topic: str) -> int:
        try:
            return len(self._connection.describe_topic(topic, "Read").partitions)
        except TopicUnknown:
            return 0
        except BrokerRefused as refused:
            if "TOPIC_AUTHORIZATION_FAILED" in refused.found:
                raise ReadRefused(topic, self._settings) from None
            raise

    @contextmanager
    def _consumer(self, *topics: str) -> Iterator[Consumer]:
        self._check_bounds(topics)
        with closing(Consumer(self._config)) as consumer:
            yield consumer

    @contextmanager
    def _naming(self, topic: str) -> Iterator[None]:
        """That the user may not read is told with the topic."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise ReadRefused(topic, self._settings) from None
            raise

    def _ranges(self, consumer: Consumer, span: TimeSpan) -> Ranges:
        """Where a span lies; parts that are empty are left out."""
        numbers = span.partitions
        if numbers is None:
            numbers = tuple(range(self.partitions_of(span.topic)))
        starts = _first_since(consumer, span.topic, span.from_ms, numbers)
        stops = _first_since(consumer, span.topic, span.until_ms, numbers)
        parts: Ranges = {}
        for number in numbers:
            there = _offsets(consumer, span.topic, number)
            start = there.start if span.from_ms is None else starts.get(number, there.stop)
            parts[span.topic, number] = range(start, stops.get(number, there.stop))
        return {place: offsets for place, offsets in parts.items() if offsets}

    def _read(self, consumer: Consumer, ranges: Ranges, visit: Visit) -> None:
        reading = _Reading(consumer, ranges, visit, self._naming, self._end_of_batch)
        before, topics = self._passed, ", ".join(sorted({topic for topic, _ in ranges}))
        with self._progress(f"reading {topics}", sum(map(len, ranges.values()))) as show:
            while not reading.is_done:
                self._check_bounds(sorted({topic for topic, _ in reading.left}))
                reading.go_on(self._now_s())
                self._passed = before + reading.passed
                show(reading.passed)
                self._after_poll()

    def _end_of_batch(self, topic: str, partition: int, base: int) -> int:
        """Where reading goes on behind a batch that cannot be read."""
        batch = unreadable_batch(lambda: Consumer(self._config), topic, partition, base)
        return base if batch is None else batch.end

    def _check_bounds(self, topics: Sequence[str]) -> None:
        if self._now_s() > self._ends_s:
            raise NotAllRead(topics, "The time allowed was over")
        if self._most_records is not None and self._passed >= self._most_records:
            raise NotAllRead(topics, f"{self._passed:,} records were looked at")


class _Reading:
    """One search under way. `left`: what has not been read to its end, `passed`: records so far.

    What the client library says of no partition is told only if nothing comes: for example that its
    user may not look for the group's coordinator, which nobody needs here.
    """

    def __init__(
        self,
        consumer: Consumer,
        ranges: Ranges,
        visit: Visit,
        naming: Callable[[str], AbstractContextManager[None]],
        end_of_batch: Callable[[str, int, int], int],
    ) -> None:
        self._end_of_batch = end_of_batch
        self.left, self.passed = dict(ranges), 0
        self._consumer, self._visit, self._naming = consumer, visit, naming
        self._heard_s: float | None = None
        self._trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
        starts = [TopicPartition(*place, span.start) for place, span in ranges.items()]
        consumer.assign(starts)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to be read."""
        return not self.left

    def go_on(self, now_s: float) -> None:
        """Look at what has come. Raises KafkaException, also after SILENT_AT_MOST_S of nothing."""
        arrived = _poll(self._consumer)
        if self._heard_s is None or any(map(_is_sign_of_life, arrived)):
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENT_AT_MOST_S:
            raise KafkaException(self._trouble)
        for message in arrived:
            place = message.topic(), message.partition()
            if place in self.left:
                with self._naming(place[0]):
                    self._take(place, message)
            elif message.error() is not None and message.topic() is None:
                self._trouble = message.error()

    def _take(self, place: tuple[str, int], message: Any) -> None:
        span, error = self.left[place], message.error()
        if error is None:
            self.passed += 1
            if message.offset() in span and self._visit(_traced(message)):
                self.left.clear()
            elif message.offset() >= span.stop - 1:
                self._leave(place)
        elif error.code() in UNREADABLE_BATCH:
            self._jump_over(place, message.offset())
        elif error.code() != KafkaError._PARTITION_EOF:
            self._trouble = _bearable(error)
        elif message.offset() >= span.stop:
            self._leave(place)

    def _jump_over(self, place: tuple[str, int], base: int) -> None:
        """A batch that no client can read holds nothing that a trace could show."""
        end = self._end_of_batch(*place, base)
        if end >= self.left[place].stop:
            self._leave(place)
        else:
            self._consumer.seek(TopicPartition(*place, end))

    def _leave(self, place: tuple[str, int]) -> None:
        """Read to its end: what lies behind need not be fetched."""
        del self.left[place]
        self._consumer.pause([TopicPartition(*place)])


def _is_sign_of_life(message: Any) -> bool:
    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF


def _poll(consumer: Consumer) -> list[Any]:
    """What has come; waits for the first only."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE_RECORDS, 0)]


def _traced(message: Any) -> TracedRecord:
    try:
        headers = read_headers(message) or []
    except SystemError:  # a name is not UTF-8; to ask a second time would crash
        headers = [(UNREADABLE, None)]
    return TracedRecord(
        Origin(message.topic(), message.partition(), message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def _bearable(error: KafkaError) -> KafkaError:
    """An error that may pass; raises any other."""
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return error


def _offsets(consumer: Consumer, topic: str, partition: int) -> range:
    place = TopicPartition(topic, partition)
    return range(*consumer.get_watermark_offsets(place, ASK_TIMEOUT_S, cached=False))


def _first_since(
    consumer: Consumer, topic: str, time_ms: int | None, partitions: Sequence[int]
) -> dict[int, int]:
    """By partition: the first offset with that timestamp or a later one, where there is one."""
    if time_ms is None or not partitions:
        return {}
    asked = [TopicPartition(topic, n, min(max(0, time_ms), NEVER_MS)) for n in partitions]
    answers = consumer.offsets_for_times(asked, ASK_TIMEOUT_S)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}
