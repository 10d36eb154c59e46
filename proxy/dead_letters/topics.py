"""The topics of dead letters and of marks, read and written."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import Settings
from proxy.dead_letters.letters.group_letter import GroupLetter
from proxy.dead_letters.letters.letter import Letter, Origin, Place, letter_of
from proxy.dead_letters.letters.letter_summary import LetterSummary, windows
from proxy.dead_letters.letters.marks import Mark, Replayed, read_mark, read_mark_key
from proxy.dead_letters.replay_plan import CLOCKS_APART_MS, Original, Selection
from proxy.errors import BrokerRefused, ProxyError
from proxy.kafka.access import Connection, TopicUnknown, client_config
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.ingress.ingress import NOT_IN_THE_LOG, Fetched
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.kafka.ingress.unreadable import UNREADABLE_BATCH
from proxy.kafka.topics import UNPACKED
from proxy.protocol.body import Message
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic

# Reads ranges of offsets of a topic: committed records, in no group, with a bound on memory.

AT_ONCE_RECORDS: Final = 500
POLL_S: Final = 0.5
ASK_TIMEOUT_S: Final = 8.0
SILENT_AT_MOST_S: Final = 15.0
READER_CONFIG: Final[dict[str, str | int | bool]] = {
    "enable_auto_commit": False,
    "enable_partition_eof": True,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_poll_interval_ms": 86_400_000,
    "queued_max_messages_kbytes": 16_384,
    "fetch_wait_max_ms": 20,
}
"""A record may be polled for late, at the pace of a replay; what waits meanwhile is bounded."""


class TopicReader:
    """Reads `topic`. `new_consumer` makes one with READER_CONFIG.

    Each range is read by a consumer of its own: after a jump, what was fetched before it can
    still come (librdkafka issue 2256). `after_poll` is called after each few hundred records; what
    it raises ends the reading. Raises KafkaException, also when nothing comes for
    SILENT_AT_MOST_S.
    """

    def __init__(
        self,
        new_consumer: Callable[[], Consumer],
        topic: str,
        partitions: Sequence[int],
        now_s: Callable[[], float] = time.monotonic,
        after_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._new_consumer, self._topic = new_consumer, topic
        self.partitions, self._now_s = tuple(partitions), now_s
        self._after_poll = after_poll

    def spans(self) -> dict[int, range]:
        """By partition: the first offset still there, and the end of what is committed."""
        with closing(self._new_consumer()) as consumer:
            return {
                partition: range(
                    *consumer.get_watermark_offsets(self._at(partition), ASK_TIMEOUT_S, False)
                )
                for partition in self.partitions
            }

    def first_since(self, time_ms: int, spans: dict[int, range]) -> dict[int, int]:
        """By partition: the first offset with that timestamp or a later one; the end if none."""
        asked = [self._at(partition, time_ms) for partition in spans]
        with closing(self._new_consumer()) as consumer:
            answers = consumer.offsets_for_times(asked, ASK_TIMEOUT_S)
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {
            a.partition: a.offset if a.offset >= 0 else spans[a.partition].stop for a in answers
        }

    def records(self, partition: int, span: range) -> Iterator[Message]:
        """The committed records within the span, their headers readable (`ingress.Fetched`)."""
        if not span:
            return
        with closing(self._new_consumer()) as consumer:
            consumer.assign([self._at(partition, span.start)])
            for message in self._until(consumer, partition, span.stop):
                if span.start <= message.offset() < span.stop:
                    yield message

    def _until(self, consumer: Consumer, partition: int, end: int) -> Iterator[Message]:
        heard_s = self._now_s()
        trouble = KafkaError(KafkaError._TIMED_OUT, "no record came in time")
        is_done = False
        while not is_done:
            fetched = Fetched()
            errors = fetched.add(_poll(consumer))
            records = fetched.records[partition]
            yield from records
            self._after_poll()
            heard_s = self._now_s() if records else heard_s
            is_done = bool(records) and records[-1].offset() >= end - 1
            for message in errors:
                if _ends_partition(message):
                    is_done = is_done or message.offset() >= end
                else:
                    trouble = _bearable(message)
            if self._now_s() - heard_s > SILENT_AT_MOST_S:
                raise KafkaException(trouble)

    def _at(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)


def _poll(consumer: Consumer) -> list[Any]:
    """What has come; waits for the first only."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE_RECORDS, 0)]


def _ends_partition(message: Message) -> bool:
    error = message.error()
    return isinstance(error, KafkaError) and error.code() == KafkaError._PARTITION_EOF


def _bearable(message: Message) -> KafkaError:
    """An error that may pass; raises any other."""
    error = cast(KafkaError, message.error())
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return error


# The ingress records that became letters: read again where a letter came without its value.


class Originals:
    """Reads originals one by one. `new_consumer` makes one with `lookup_config`.

    `partitions_of` says how many partitions a topic has, 0 when there is no such topic. Raises
    KafkaException.
    """

    def __init__(
        self, new_consumer: Callable[[], Consumer], partitions_of: Callable[[str], int]
    ) -> None:
        self._new_consumer, self._partitions_of = new_consumer, partitions_of
        self._topic = ""
        self._partitions = 0
        self._lookup: IngressLookup | None = None

    def find(self, letter: Letter) -> Original | None:
        """The record at the letter's origin, whatever it is; None when nothing is there, or no
        client can read it."""
        origin = letter.origin
        if origin is None:
            return None
        lookup = self._lookup_in(origin.topic)
        if origin.partition >= self._partitions:
            return None
        try:
            record = lookup.read(origin.partition, [origin.offset], 0).get(origin.offset)
        except KafkaException as error:
            if error.args[0].code() not in {NOT_IN_THE_LOG, *UNREADABLE_BATCH}:
                raise
            self.close()  # beyond the end: the topic has been made anew
            return None
        if record is None:
            return None
        return record.key(), record.value(), record.headers() or []

    def close(self) -> None:
        """Give the consumer up; another is made when needed."""
        if self._lookup is not None:
            self._lookup.close()

    def _lookup_in(self, topic: str) -> IngressLookup:
        if self._lookup is None or topic != self._topic:
            self.close()
            self._topic, self._partitions = topic, self._partitions_of(topic)
            self._lookup = IngressLookup(self._new_consumer, topic, lambda: None)
        return self._lookup


# The marks topic on the broker: made, checked, and read.

MARKS_TIMEOUT_S: Final = 10.0
SETTLED_WITHIN_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
MARKS_APART_MS: Final = 3_600_000
"""Marks are stamped by another clock than letters: how much older a mark may seem."""
NOT_THERE_YET: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
CONFIG: Final = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    **UNPACKED,
}


def create_marks_topic(topic: str, admin: AdminClient) -> None:
    """Make the topic; one that another replay has just made is fine. Raises BrokerRefused."""
    wanted = NewTopic(topic, num_partitions=1, config=CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=MARKS_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BrokerRefused(
                f"The topic {topic}, which keeps account of replays, could not be created: "
                f"{error.args[0].str()}.",
                "Create it by hand (1 partition, cleanup.policy=compact).",
            ) from None


def await_there(reader: TopicReader, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return when every broker that is asked knows the topic, which has just been made."""
    for _ in range(round(SETTLED_WITHIN_S / LOOK_EVERY_S)):
        try:
            reader.spans()
            return
        except KafkaException as error:
            if error.args[0].code() not in NOT_THERE_YET:
                raise
        sleep(LOOK_EVERY_S)
    reader.spans()


def refuse_forgetful(topic: str, admin: AdminClient) -> None:
    """Raises BrokerRefused when the topic would forget marks, and letters be replayed twice.

    Without the right to ask nothing is known, and nothing refused.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        answers = admin.describe_configs([resource], request_timeout=MARKS_TIMEOUT_S)
        policy = str(answers[resource].result()["cleanup.policy"].value)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return
        raise
    if policy != "compact":
        raise BrokerRefused(
            f"The topic {topic} keeps account of which dead letters were replayed, but its "
            f"cleanup.policy is {policy}: what it forgets could be replayed twice.",
            "Set its cleanup.policy to compact.",
        )


def await_settled(reader: TopicReader, uncommitted: TopicReader) -> None:
    """Return when no transaction is open on the topic. Raises BrokerRefused when one stays so."""
    deadline_s = time.monotonic() + SETTLED_WITHIN_S
    while reader.spans() != uncommitted.spans():
        if time.monotonic() > deadline_s:
            raise BrokerRefused(
                "A transaction of an earlier replay does not end, so it is not known which "
                "letters it has replayed.",
                "docs/operations/runbook.md says how to find and abort a hanging transaction.",
            )
        time.sleep(LOOK_EVERY_S)


def read_replayed(reader: TopicReader, replayed: Replayed) -> None:
    """Note every mark there is, from the first on."""
    for partition, span in reader.spans().items():
        for message in reader.records(partition, span):
            replayed.note(message.key(), message.value())


def read_marks(
    reader: TopicReader, topic_id: str, places: Collection[Place], since_ms: int
) -> Mapping[Place, Mark]:
    """The marks of these letters, of which the oldest was written at `since_ms`."""
    marks: dict[Place, Mark] = {}
    if not places:
        return marks
    spans = reader.spans()
    starts = reader.first_since(max(0, since_ms - MARKS_APART_MS), spans)
    for partition, span in spans.items():
        for message in reader.records(partition, range(starts[partition], span.stop)):
            key = read_mark_key(message.key())
            mark = read_mark(message.value(), message.timestamp()[1])
            if key and mark and key[0] == topic_id and key[1] in places:
                marks[key[1]] = mark
    return marks


# What is read of dead letters: letters, replay marks, ingress records.

GROUP = "kafka-delay-proxy-dead-letters"
"""Never joined and nothing is committed; the client library wants a name."""

READ_ON: Final = 200
"""So many letters are read through rather than jumped over."""

OnRead = Callable[[int], None]
"""Called with how many offsets have been passed since the last call."""


class DeadLettersMissing(ProxyError):
    """There is no dead-letter topic."""

    def __init__(self, topic: str, bootstrap: str, group: str | None) -> None:
        name, none = ("dead_letters", "a proxy that has never run there has no dead letters")
        if group is not None:
            name, none = ("dlq_prefix", "a group whose consumers have never given up may have none")
        super().__init__(
            f"The dead-letter topic {topic} does not exist at {bootstrap}.",
            "Name the proxy's settings file with --config if it is called otherwise there "
            f"(`topics: {name}`); {none}.",
        )


class NoSuchLetter(ProxyError):
    """Nothing lies at the place, or came from the origin, that a person named."""


def checked_group(group: str | None) -> str | None:
    """The name of a group that can have dead letters. Raises ValueError with a sentence."""
    if group is None or is_legal_topic(group):
        return group
    raise ValueError(f"{group!r} is no group that has dead letters: {TOPIC_NAME_RULE}")


class DeadLetterTopics:
    """Readers of the dead letters, their marks, and their originals; or of a group's dead letters.

    `after_poll` is called after each few hundred records that were read; what it raises ends the
    reading. Raises DeadLettersMissing, BrokerUnreachable, BrokerRefused.
    """

    def __init__(
        self,
        settings: Settings,
        group: str | None = None,
        after_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings, self.group, self._after_poll = settings, group, after_poll
        self.connection = Connection(settings)
        topics = settings.topics
        self.name = topics.dead_letters if group is None else topics.dlq_prefix + group
        self.marks_name = topics.replay_marks_of(self.name)
        self._letter_of = partial(letter_of, Letter if group is None else GroupLetter)
        try:
            described = self.connection.describe_topic(self.name, "Read")
        except TopicUnknown:
            raise DeadLettersMissing(self.name, settings.bootstrap_servers, group) from None
        self.topic_id = str(described.topic_id)
        self._reader = self.reader(self.name, len(described.partitions))

    def reader(self, topic: str, partitions: int, **own: str) -> TopicReader:
        """A reader of a topic with so many partitions."""
        config = client_config(self.settings, group_id=GROUP, **{**READER_CONFIG, **own})
        consumers = partial(Consumer, config)
        return TopicReader(consumers, topic, range(partitions), after_poll=self._after_poll)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
        try:
            return len(self.connection.describe_topic(topic, "Read").partitions)
        except TopicUnknown:
            return 0

    def originals(self) -> Originals:
        """A reader of ingress records; to be closed."""
        config = {**lookup_config(self.settings), **client_config(self.settings)}
        config["group.id"] = GROUP
        return Originals(partial(Consumer, config), self.partitions_of)

    def spans(self, selection: Selection | None = None) -> dict[int, range]:
        """Where letters of the wanted time can lie, by partition; all that is there by default."""
        spans = self._reader.spans()
        if selection is None:
            return spans
        starts = ends = None
        if selection.from_ms is not None:
            starts = self._reader.first_since(max(0, selection.from_ms), spans)
        if selection.to_ms is not None:
            ends = self._reader.first_since(max(0, selection.to_ms) + CLOCKS_APART_MS, spans)
        return {
            partition: range(
                starts[partition] if starts else span.start,
                ends[partition] if ends else span.stop,
            )
            for partition, span in spans.items()
        }

    def letters(
        self, selection: Selection, on_read: OnRead, partition: int, span: range
    ) -> Iterator[Letter]:
        """The wanted letters within some offsets, in their order."""
        passed = span.start
        for message in self._reader.records(partition, span):
            on_read(message.offset() + 1 - passed)
            passed = message.offset() + 1
            letter = self._letter_of(message)
            if selection.takes(letter):
                yield letter

    def every(
        self, selection: Selection, spans: Mapping[int, range], on_read: OnRead
    ) -> Iterator[Letter]:
        """The wanted letters of all partitions, one partition after the other."""
        for partition, span in spans.items():
            yield from self.letters(selection, on_read, partition, span)

    def at(self, places: Iterable[Place], on_missing: Callable[[Place], None]) -> Iterator[Letter]:
        """The letters at these places; `on_missing` is told of places where none lies."""
        spans = self.spans()
        for run in _runs(sorted(set(places))):
            partition, missing = run[0].partition, set(run)
            span = spans.get(partition, range(0))
            near = range(max(run[0].offset, span.start), min(run[-1].offset + 1, span.stop))
            for letter in self.letters(Selection(), lambda _: None, partition, near):
                if letter.place in missing:
                    missing.discard(letter.place)
                    yield letter
            for place in sorted(missing):
                on_missing(place)

    def letter(self, named: Place | Origin, on_read: OnRead = lambda _: None) -> Letter:
        """The letter at a place or of an origin. Raises NoSuchLetter."""
        return self._at(named) if isinstance(named, Place) else self._of(named, on_read)

    def marks(self, shown: Sequence[LetterSummary]) -> Mapping[Place, Mark]:
        """When and as what these letters have been replayed, those that have."""
        partitions = self.partitions_of(self.marks_name)
        if not partitions or not shown:
            return {}
        since_ms = min(one.timestamp_ms for one in shown)
        reader = self.reader(self.marks_name, partitions)
        return read_marks(reader, self.topic_id, {one.place for one in shown}, since_ms)

    def _at(self, place: Place) -> Letter:
        spans = self.spans()
        span = spans.get(place.partition)
        if span is None:
            raise NoSuchLetter(
                f"{self.name} has no partition {place.partition}: it has 0 to {len(spans) - 1}."
            )
        if place.offset in span:
            one = range(place.offset, place.offset + 1)
            for message in self._reader.records(place.partition, one):
                return self._letter_of(message)
        raise NoSuchLetter(_nothing_at(place, span, self.name), "`dead-letters list` says where.")

    def _of(self, origin: Origin, on_read: OnRead) -> Letter:
        for partition, span in self.spans().items():
            for window in windows(span):
                for letter in self.letters(Selection(), on_read, partition, window):
                    if letter.origin == origin:
                        return letter
        raise NoSuchLetter(
            f"No dead letter in {self.name} came from {origin}.",
            "It was delivered, still waits, or the letter has been deleted by the topic's "
            "retention.",
        )


def _runs(places: Sequence[Place]) -> list[list[Place]]:
    """The places, in order, parted where it is cheaper to jump than to read on."""
    runs: list[list[Place]] = []
    for place in places:
        last = runs[-1][-1] if runs else None
        if last and last.partition == place.partition and place.offset - last.offset <= READ_ON:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _nothing_at(place: Place, span: range, topic: str) -> str:
    if not span:
        return f"No dead letter lies at {place}: partition {place.partition} of {topic} is empty."
    if place.offset in span:
        return (
            f"No dead letter lies at {place} of {topic}: Kafka's own records of transactions take "
            "offsets too."
        )
    return (
        f"No dead letter lies at {place}: partition {place.partition} of {topic} holds offsets "
        f"{span.start} to {span.stop - 1}."
    )
