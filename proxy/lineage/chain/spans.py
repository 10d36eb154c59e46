"""Where, and from which time on, what belongs to a record can lie. Pure."""

from collections.abc import Callable, Iterator
from typing import Final

from proxy.config.settings import TopicSettings
from proxy.dead_letters.letters.letter import Origin
from proxy.dispatch.partitioning import partition_of
from proxy.lineage.chain.asked import HALF_MESSAGE, Asked
from proxy.lineage.chain.link import Link
from proxy.lineage.chain.traced_record import TimeSpan, TracedRecord
from proxy.protocol.headers import HOP_FROM

CLOCKS_APART_MS: Final = 60_000
"""How far stamps of different topics may be apart: of brokers, the proxy, and its transaction."""


class Spans:
    """For the proxy whose topics are `names`. `partitions_of`: 0 for a topic that is not there."""

    def __init__(self, names: TopicSettings, partitions_of: Callable[[str], int]) -> None:
        self._names, self._partitions_of = names, partitions_of

    def ends(self, link: Link) -> Iterator[list[TimeSpan]]:
        """Where its outcome or its delivery is by the keys, and then where it may be besides.

        A topic may have got more partitions since.
        """
        record, asked = link.record, link.asked
        from_ms = None if record is None else record.timestamp_ms - CLOCKS_APART_MS
        outcomes = self._by_key(self._names.outcomes, str(link.origin).encode(), from_ms)
        target = [] if asked is None else self._target(asked)
        for choice in _choices(outcomes, target):
            if there := [span for span in choice if span.partitions]:
                yield there

    def outcomes_near(self, time_ms: int) -> list[TimeSpan]:
        """Outcomes of about the same transaction."""
        return self._near(self._names.outcomes, time_ms)

    def letters_near(self, time_ms: int) -> list[TimeSpan]:
        """The same of dead letters."""
        return self._near(self._names.dead_letters, time_ms)

    def ingress_since(self, origin: Origin, time_ms: int | None) -> TimeSpan:
        """All of the record's partition of the ingress from a time on."""
        from_ms = None if time_ms is None else time_ms - CLOCKS_APART_MS
        return TimeSpan(origin.topic, from_ms, None, (origin.partition,))

    def controls(self, link: Link) -> list[TimeSpan]:
        """Outcomes of what can have decided about the record, from when it was written on."""
        record, ended_ms = link.record, link.ended_ms
        from_ms = ended_ms
        if record is not None and (_is_half(link) or record.header(HOP_FROM) is not None):
            from_ms = record.timestamp_ms
        return self._between(self._names.outcomes, from_ms, ended_ms)

    def checks(self, topic: str, link: Link, until_ms: int | None) -> list[TimeSpan]:
        """Check-backs of a half message."""
        from_ms = None if link.record is None else link.record.timestamp_ms
        return self._between(topic, from_ms, until_ms)

    def marks(self, letter: TracedRecord) -> list[TimeSpan]:
        """What keeps account of replays, since the letter was written."""
        return self._between(self._names.replay_marks, letter.timestamp_ms, None)

    def retries(self, delivery: TracedRecord, within_ms: int) -> list[TimeSpan]:
        """Requests of consumers that could not process a delivery; they have its key."""
        until_ms = delivery.timestamp_ms + within_ms
        ingress = self._names.ingress
        if delivery.key is None:
            return self._between(ingress, delivery.timestamp_ms, until_ms)
        from_ms = delivery.timestamp_ms - CLOCKS_APART_MS
        own = self._by_key(ingress, delivery.key, from_ms)[0]
        return [own._replace(until_ms=until_ms)] if own.partitions else []

    def _near(self, topic: str, time_ms: int) -> list[TimeSpan]:
        return self._between(topic, time_ms, time_ms)

    def _between(self, topic: str, from_ms: int | None, until_ms: int | None) -> list[TimeSpan]:
        if not self._partitions_of(topic):
            return []
        first = None if from_ms is None else from_ms - CLOCKS_APART_MS
        last = None if until_ms is None else until_ms + CLOCKS_APART_MS
        return [TimeSpan(topic, first, last)]

    def _target(self, asked: Asked) -> list[TimeSpan]:
        topic, due_ms = asked.target, asked.due_ms
        if topic is None:
            return []
        from_ms = None if due_ms is None else due_ms - CLOCKS_APART_MS
        if asked.partition >= 0:
            is_there = asked.partition < self._partitions_of(topic)
            return [TimeSpan(topic, from_ms, None, (asked.partition,))] if is_there else []
        return self._by_key(topic, asked.key, from_ms)

    def _by_key(self, topic: str, key: bytes | None, from_ms: int | None) -> list[TimeSpan]:
        """The partition of the key, then the others; without a key all at once."""
        count = self._partitions_of(topic)
        everywhere = TimeSpan(topic, from_ms, None, tuple(range(count)))
        if key is None or not count:
            return [everywhere]
        own = partition_of(key, count)
        others = tuple(number for number in range(count) if number != own)
        return [everywhere._replace(partitions=(own,)), everywhere._replace(partitions=others)]


def _choices(first: list[TimeSpan], second: list[TimeSpan]) -> Iterator[list[TimeSpan]]:
    """The first choices of both, then the second ones; where one has fewer, what there is."""
    for number in range(max(len(first), len(second))):
        yield [*first[number : number + 1], *second[number : number + 1]]


def _is_half(link: Link) -> bool:
    return link.asked is not None and link.asked.kind == HALF_MESSAGE
