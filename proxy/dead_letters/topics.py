"""The topics of dead letters and of marks."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import Settings
from proxy.dead_letters.letter import (
    GroupLetter,
    Letter,
    LetterSummary,
    Origin,
    Place,
    windows,
)
from proxy.dead_letters.replay_plan import (
    CLOCKS_APART_MS,
    Mark,
    Original,
    Replayed,
    Selection,
    is_original,
    read_mark,
    read_mark_key,
)
from proxy.errors import BrokerRefused, ProxyError
from proxy.kafka.access import Connection, TopicUnknown, client_config
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.ingress import NOT_IN_THE_LOG
from proxy.kafka.reader import READER_CONFIG, IngressLookup, TopicReader
from proxy.kafka.topics import UNPACKED
from proxy.kafka.unreadable import UNREADABLE_BATCH
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic


class Originals:
    """Reads the ingress records from which letters without values were made. `new_consumer` uses
    `lookup_config`, and `partitions_of` returns 0 for a missing topic. Raises KafkaException."""

    def __init__(
        self, new_consumer: Callable[[], Consumer], partitions_of: Callable[[str], int]
    ) -> None:
        self._new_consumer, self._partitions_of = new_consumer, partitions_of
        self._topic = ""
        self._partitions = 0
        self._lookup: IngressLookup | None = None

    def find(self, letter: Letter) -> Original | None:
        """Return the record at the letter's origin, if it still exists and is readable."""
        origin = letter.origin
        if origin is None:
            return None
        if self._lookup is None or origin.topic != self._topic:
            self.close()
            self._topic, self._partitions = origin.topic, self._partitions_of(origin.topic)
            self._lookup = IngressLookup(self._new_consumer, origin.topic, lambda: None)
        if origin.partition >= self._partitions:
            return None
        try:
            record = self._lookup.read(origin.partition, [origin.offset], 0).get(origin.offset)
        except KafkaException as error:
            if error.args[0].code() not in {NOT_IN_THE_LOG, *UNREADABLE_BATCH}:
                raise
            self.close()  # the topic may have been created again, without this place
            return None
        if record is None:
            return None
        return record.key(), record.value(), record.headers() or []

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.close()


MARKS_TIMEOUT_S: Final = 10.0
SETTLED_WITHIN_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
MARKS_APART_MS: Final = 3_600_000
"""Marks and letters get timestamps from different clocks, so a mark may seem to be up to this much
older than its letter."""
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


def _create_marks_topic(topic: str, admin: AdminClient) -> None:
    """Create the topic, unless another replay has just created it. Raises BrokerRefused."""
    wanted = NewTopic(topic, num_partitions=1, config=CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=MARKS_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BrokerRefused(
                f"The topic {topic}, which records the replays, could not be created: "
                f"{error.args[0].str()}.",
                "Create it yourself (1 partition, cleanup.policy=compact).",
            ) from None


def await_there(reader: TopicReader, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until the brokers know the new topic."""
    for _ in range(round(SETTLED_WITHIN_S / LOOK_EVERY_S)):
        try:
            reader.spans()
            return
        except KafkaException as error:
            if error.args[0].code() not in NOT_THERE_YET:
                raise
        sleep(LOOK_EVERY_S)
    reader.spans()


def _refuse_forgetful(topic: str, admin: AdminClient) -> None:
    """Raise BrokerRefused if the topic deletes old marks, because letters could be replayed twice
    then. Raise nothing if this user may not see the topic's settings."""
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
            f"The topic {topic} records which dead letters were replayed, but its "
            f"cleanup.policy is {policy}. A letter whose mark is deleted could be replayed "
            "twice.",
            "Set its cleanup.policy to compact.",
        )


def _await_settled(reader: TopicReader, uncommitted: TopicReader) -> None:
    """Wait until no transaction is open on the topic. Raises BrokerRefused."""
    deadline_s = time.monotonic() + SETTLED_WITHIN_S
    while reader.spans() != uncommitted.spans():
        if time.monotonic() > deadline_s:
            raise BrokerRefused(
                "A transaction of an earlier replay does not end. It is unknown which letters "
                "this transaction has replayed.",
                "docs/operations/runbook.md says how to find and abort a hanging transaction.",
            )
        time.sleep(LOOK_EVERY_S)


GROUP: Final = "kafka-delay-proxy-dead-letters"
"""The client library requires a group. No consumer joins this group or commits offsets."""
READ_ON: Final = 200
"""Up to this many offsets between two wanted letters are read, not jumped over."""

OnRead = Callable[[int], None]


class MarksMissing(ProxyError):
    """The marks topic does not exist and may not be created."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The topic {topic}, which records the replays, does not exist.",
            "Create it (1 partition, cleanup.policy=compact), or set `topics: create: true`.",
        )


class DeadLettersMissing(ProxyError):
    """The dead-letter topic does not exist."""

    def __init__(self, topic: str, bootstrap: str, group: str | None) -> None:
        name, none = ("dead_letters", "If the proxy has never run there, there are no dead letters")
        if group is not None:
            name, none = (
                "dlq_prefix",
                "If the group's consumers have never given up, there may be none",
            )
        super().__init__(
            f"The dead-letter topic {topic} does not exist at {bootstrap}.",
            "Name the proxy's settings file with --config if the topic has another name "
            f"(`topics: {name}`). {none}.",
        )


class NoSuchLetter(ProxyError):
    """No letter is at the named place, or has the named origin."""


def checked_group(group: str | None) -> str | None:
    """Return a group's valid name. Raises ValueError with a sentence."""
    if group is None or is_legal_topic(group):
        return group
    raise ValueError(f"{group!r} cannot have a dead-letter topic: {TOPIC_NAME_RULE}")


class DeadLetterTopics:
    """Dead letters of the proxy or of a group, their marks and originals.

    `after_poll` is called after each poll, and may raise to end the reading. Raises
    DeadLettersMissing, BrokerUnreachable, BrokerRefused.
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
        self.name = topics.dead_letters_of(group)
        self.marks_name = topics.replay_marks_of(self.name)
        self.transactional_id = topics.replay_id_of(self.name)
        self._letter_of = (Letter if group is None else GroupLetter).of
        try:
            described = self.connection.describe_topic(self.name, "Read")
        except TopicUnknown:
            raise DeadLettersMissing(self.name, settings.bootstrap_servers, group) from None
        self.topic_id = str(described.topic_id)
        self._reader = self.reader(self.name, len(described.partitions))

    def reader(self, topic: str, partitions: int, **own: str) -> TopicReader:
        config = client_config(self.settings, group_id=GROUP, **{**READER_CONFIG, **own})
        consumers = partial(Consumer, config)
        return TopicReader(consumers, topic, range(partitions), after_poll=self._after_poll)

    def partitions_of(self, topic: str) -> int:
        try:
            return len(self.connection.describe_topic(topic, "Read").partitions)
        except TopicUnknown:
            return 0

    def originals(self) -> Originals:
        """Return a reader of ingress records. The caller must close it."""
        config = {**lookup_config(self.settings), **client_config(self.settings)}
        config["group.id"] = GROUP
        return Originals(partial(Consumer, config), self.partitions_of)

    def original(self, letter: Letter) -> Original | None:
        with closing(self.originals()) as originals:
            found = originals.find(letter)
        return found if found is not None and is_original(letter, found) else None

    def spans(self, selection: Selection | None = None) -> dict[int, range]:
        spans = self._reader.spans()
        starts = {partition: span.start for partition, span in spans.items()}
        ends = {partition: span.stop for partition, span in spans.items()}
        if selection is not None and selection.from_ms is not None:
            starts = self._reader.first_since(max(0, selection.from_ms), spans)
        if selection is not None and selection.to_ms is not None:
            ends = self._reader.first_since(max(0, selection.to_ms) + CLOCKS_APART_MS, spans)
        return {one: range(starts[one], ends[one]) for one in spans}

    def letters(
        self, selection: Selection, on_read: OnRead, partition: int, span: range
    ) -> Iterator[Letter]:
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
        for partition, span in spans.items():
            yield from self.letters(selection, on_read, partition, span)

    def at(self, places: Iterable[Place], on_missing: Callable[[Place], None]) -> Iterator[Letter]:
        """Yield the letters at these places. Call `on_missing` for each place without a letter."""
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
        """Return the letter at a place, or the newest letter of an origin. Raises NoSuchLetter."""
        return self._at(named) if isinstance(named, Place) else self._of(named, on_read)

    def marks(self, shown: Sequence[LetterSummary]) -> Mapping[Place, Mark]:
        """Return the marks of these letters."""
        marks: dict[Place, Mark] = {}
        partitions = self.partitions_of(self.marks_name)
        if not partitions or not shown:
            return marks
        places = {one.place for one in shown}
        since_ms = min(one.timestamp_ms for one in shown)
        reader = self.reader(self.marks_name, partitions)
        spans = reader.spans()
        starts = reader.first_since(max(0, since_ms - MARKS_APART_MS), spans)
        for partition, span in spans.items():
            for message in reader.records(partition, range(starts[partition], span.stop)):
                key = read_mark_key(message.key())
                mark = read_mark(message.value(), message.timestamp()[1])
                if key and mark and key[0] == self.topic_id and key[1] in places:
                    marks[key[1]] = mark
        return marks

    def ensure_marks(self) -> int:
        """Create the marks topic if it is missing. Return its partitions. Raises MarksMissing,
        BrokerRefused."""
        topic, admin = self.marks_name, self.connection
        if partitions := self.partitions_of(topic):
            _refuse_forgetful(topic, admin)
            return partitions
        if not self.settings.topics.create:
            raise MarksMissing(topic)
        _create_marks_topic(topic, admin)
        await_there(self.reader(topic, 1))
        return 1

    def replayed(self, marks_partitions: int, *, is_settled: bool) -> Replayed:
        """Return the replayed letters. With `is_settled`, first wait for open transactions."""
        reader = self.reader(self.marks_name, marks_partitions)
        if is_settled:
            own = {"isolation_level": "read_uncommitted"}
            _await_settled(reader, self.reader(self.marks_name, marks_partitions, **own))
        replayed = Replayed(self.topic_id, self.spans())
        if marks_partitions:
            for partition, span in reader.spans().items():
                for message in reader.records(partition, span):
                    replayed.note(message.key(), message.value())
        return replayed

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
        raise NoSuchLetter(
            _nothing_at(place, span, self.name), "`dead-letters list` shows the places."
        )

    def _of(self, origin: Origin, on_read: OnRead) -> Letter:
        """Return the newest letter of an origin. Search each partition backwards."""
        for partition, span in self.spans().items():
            for window in windows(span):
                for letter in self.letters(Selection(), on_read, partition, window):
                    if letter.origin == origin:
                        return letter
        raise NoSuchLetter(
            f"No dead letter in {self.name} came from {origin}.",
            "The record was delivered, is pending, or the topic's retention has deleted the "
            "letter.",
        )


def _runs(places: Sequence[Place]) -> list[list[Place]]:
    """Split the sorted places where the next place is more than READ_ON offsets away."""
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
            f"No dead letter lies at {place} of {topic}. Kafka's transaction markers also have "
            "offsets."
        )
    return (
        f"No dead letter lies at {place}: partition {place.partition} of {topic} holds offsets "
        f"{span.start} to {span.stop - 1}."
    )
