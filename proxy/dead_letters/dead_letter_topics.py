"""What is read of dead letters: letters, replay marks, ingress records."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer

from proxy.config.settings import Settings
from proxy.dead_letters.letters.group_letter import GroupLetter
from proxy.dead_letters.letters.letter import Letter, Origin, Place, letter_of
from proxy.dead_letters.letters.letter_summary import LetterSummary, windows
from proxy.dead_letters.letters.marks import Mark
from proxy.dead_letters.letters.selection import CLOCKS_APART_MS, Selection
from proxy.dead_letters.marks_topic import read_marks
from proxy.dead_letters.originals import Originals
from proxy.dead_letters.topic_reader import READER_CONFIG, TopicReader
from proxy.errors import ProxyError
from proxy.kafka.access.connection import Connection, TopicUnknown, client_config
from proxy.kafka.client_settings import lookup_config
from proxy.requests.topic_names import TOPIC_NAME_RULE, is_legal_topic

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
