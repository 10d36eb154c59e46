"""Follows a record through the topics: what is read next, given what has been found."""

from collections import deque
from typing import Final, NamedTuple

from proxy.config.settings import TopicSettings
from proxy.dead_letters.letters.letter import Origin, Place, read_origin
from proxy.dead_letters.letters.marks import read_mark, read_mark_key
from proxy.lineage.chain.asked import HALF_MESSAGE
from proxy.lineage.chain.link import (
    AFTER_A_GAP,
    HOPPED,
    INGESTED,
    REPLAYED,
    RETRIED,
    Control,
    Link,
    Trace,
)
from proxy.lineage.chain.matching import (
    BY_ANOTHER,
    End,
    hop_from,
    is_about,
    is_check_back,
    is_delivery_of,
    is_letter_of,
    is_move,
    is_retry_of,
    is_successor_of,
    outcome_in,
)
from proxy.lineage.chain.spans import CLOCKS_APART_MS, Spans
from proxy.lineage.chain.traced_record import NotAllRead, Topics, TracedRecord
from proxy.lineage.topics import IngressRecords
from proxy.protocol.headers import FIRST_ORIGIN, RETRY_GROUP
from proxy.protocol.outcomes import APPLIED, DEAD_LETTERED, EXPIRED, MISSED
from proxy.protocol.request_reader import RequestReader

MOST_LINKS: Final = 1_000
MOST_CONTROLS: Final = 20
MOST_CHECKS: Final = 1_000
MOST_RETRIES: Final = 100


class _Arrival(NamedTuple):
    """An ingress record to be looked at next, and how it came to be."""

    origin: Origin
    how: str


class Tracer:
    """For the proxy whose topics are `names`. `reader` says what records ask for.

    retries_within_ms: a consumer's failure is looked for so long after each delivery.
    """

    def __init__(
        self,
        topics: Topics,
        names: TopicSettings,
        reader: RequestReader,
        retries_within_ms: int,
    ) -> None:
        self._topics, self._names = topics, names
        self._records = IngressRecords(topics, names.ingress, reader)
        self._spans = Spans(names, topics.partitions_of)
        self._retries_within_ms = retries_within_ms
        self._successors: dict[Origin, Origin] = {}

    def trace(self, origin: Origin) -> Trace:
        """All about the ingress record at `origin`, and the chain that it belongs to."""
        trace = self._traced(origin)
        unread = self._topics.unread()
        trace.unknown += unread
        trace.is_whole = trace.is_whole and not unread
        return trace

    def _traced(self, origin: Origin) -> Trace:
        trace = Trace(origin)
        if not self._topics.partitions_of(self._names.outcomes):
            trace.unknown.append(f"Any outcome: there is no topic {self._names.outcomes}.")
        try:
            if self._took_no_place(origin):
                self._follow(trace, origin)
                return trace
            ancestry = self._records.ancestry(origin)
            trace.unknown += ancestry.unknown
            self._successors = ancestry.successors
            self._follow(trace, ancestry.root)
            if origin not in {link.origin for link in trace.links}:
                trace.unknown.append(f"How the record went on from {ancestry.root} to {origin}.")
                self._follow(trace, origin)
        except NotAllRead as late:
            trace.is_whole = False
            trace.unknown.append(f"What came after this. {late}")
        return trace

    def _took_no_place(self, origin: Origin) -> bool:
        """Whether it was to take the place of another record, and came too late for that."""
        found = self._records.read(origin)
        if found is None or not is_move(found.record):
            return False
        link = Link(origin, INGESTED, *found)
        self._find_end(link)
        return link.end is not None and link.end.what == MISSED

    def _follow(self, trace: Trace, start: Origin) -> None:
        """From one record to all that came of it, the one that comes first looked at first."""
        coming = deque([_Arrival(start, INGESTED)])
        seen = {link.origin for link in trace.links}
        while coming:
            arrival = coming.popleft()
            if arrival.origin in seen:
                continue
            if len(trace.links) >= MOST_LINKS:
                trace.unknown.append(f"What came after: trace {arrival.origin} shows it.")
                return
            seen.add(arrival.origin)
            coming.extend(self._look(trace, arrival))

    def _look(self, trace: Trace, arrival: _Arrival) -> list[_Arrival]:
        """All about one record, and what came of it."""
        link = Link(arrival.origin, arrival.how)
        trace.links.append(link)
        if (ingested := self._records.read(arrival.origin)) is not None:
            link.record, link.asked = ingested
        self._find_end(link)
        self._find_controls(link)
        self._find_checks(link)
        if link.delivery is not None:
            return self._retries(link, link.delivery)
        if link.end is not None and link.end.what in {DEAD_LETTERED, EXPIRED}:
            return self._replay(link, link.end)
        goes_on = link.record is None if link.end is None else link.end.is_hop
        return self._successor(trace, link) if goes_on else []

    def _find_end(self, link: Link) -> None:
        """Its outcome, or its delivery; of a hop that is known the time is known as well."""
        origin, key = link.origin, str(link.origin).encode()

        def is_end(record: TracedRecord) -> bool:
            if record.place.topic == self._names.outcomes:
                if record.key == key:
                    link.end = outcome_in(record)
                    link.unreadable = record.place if link.end is None else None
            elif is_delivery_of(record, origin):
                link.delivery = record.without_value()
            return link.ended_ms is not None

        if (after := self._successors.get(origin)) and (successor := self._records.read(after)):
            self._topics.search(self._spans.outcomes_near(successor.record.timestamp_ms), is_end)
        for spans in self._spans.ends(link):
            if link.ended_ms is None:
                self._topics.search(spans, is_end)

    def _successor(self, trace: Trace, link: Link) -> list[_Arrival]:
        """The record that goes on in its place; a later one of the chain, where that is deleted.

        It was written in the same transaction as the outcome, if there is one.
        """
        origin, ended_ms = link.origin, link.ended_ms
        is_half = link.asked is not None and link.asked.kind == HALF_MESSAGE
        later: list[Origin] = []

        def goes_on(record: TracedRecord) -> bool:
            if is_successor_of(record, origin, is_half=is_half):
                link.successor = record.place
            elif record.text(FIRST_ORIGIN) == str(origin):
                later.append(record.place)
            is_past = ended_ms is None or record.timestamp_ms > ended_ms + CLOCKS_APART_MS
            return link.successor is not None or (is_past and bool(later))

        link.successor = self._successors.get(origin)
        if link.end is not None and link.end.is_move:
            link.successor = link.end.next_origin
        if link.successor is None:
            self._topics.search([self._spans.ingress_since(origin, ended_ms)], goes_on)
        if link.successor is not None:
            return [_Arrival(link.successor, AFTER_A_GAP if link.end is None else HOPPED)]
        if link.end is not None:
            trace.unknown.append(f"What came right after {origin}: its successor is not found.")
        return [_Arrival(place, AFTER_A_GAP) for place in later[:1]]

    def _find_controls(self, link: Link) -> None:
        """Who ended it, if another record did; who decided, of a half message; what it ended."""
        asked, end = link.asked, link.end
        if asked is not None and asked.is_control:
            self._find_ended(link)
            return
        is_half = asked is not None and asked.kind == HALF_MESSAGE
        if not (is_half or (end is not None and end.what in BY_ANOTHER)):
            return
        first = link.origin if link.record is None else hop_from(link.record) or link.origin

        def note(record: TracedRecord) -> bool:
            found = outcome_in(record)
            if found is not None and found.what == APPLIED and found.origin.offset > first.offset:
                control = self._control(link, found)
                link.controls += [] if control is None else [control]
            return len(link.controls) >= MOST_CONTROLS

        self._topics.search(self._spans.controls(link), note)
        link.controls.sort(key=lambda control: control.end.origin.offset)

    def _control(self, link: Link, applied: End) -> Control | None:
        """What was applied, if that is to this record: by its id, or by an origin that it has."""
        ident = self._ident(link)
        by_id = ident is not None and is_about(applied, link.origin, ident)
        if not by_id and not is_about(applied, link.origin, None):
            return None
        ingested = self._records.read(applied.origin)
        if by_id or ingested is None:
            kind = None if ingested is None else ingested.asked.kind
            return Control(applied, kind) if by_id else None
        names = {str(link.origin), link.record and link.record.text(FIRST_ORIGIN)}
        recalled = applied.origin._replace(offset=ingested.asked.recalled or 0)
        is_its = ingested.asked.kind == "recall" and str(recalled) in names
        return Control(applied, ingested.asked.kind) if is_its else None

    def _ident(self, link: Link) -> bytes | None:
        if link.asked is not None:
            return link.asked.ident
        ident = None if link.end is None else link.end.ident
        return None if ident is None else ident.encode()

    def _find_ended(self, link: Link) -> None:
        """What a control record has ended: its outcome is in the same transaction."""
        end, ident = link.end, self._ident(link)
        recalled = None if link.asked is None else link.asked.recalled
        if end is None or end.what != APPLIED or (ident is None and recalled is None):
            return

        def note(record: TracedRecord) -> bool:
            found = outcome_in(record)
            if (
                found is not None
                and found.what in BY_ANOTHER
                and found.origin.offset < link.origin.offset
                and (recalled is not None or is_about(found, link.origin, ident))
                and recalled in (None, found.origin.offset)
            ):
                link.ended = found
            return False

        self._topics.search(self._spans.outcomes_near(end.timestamp_ms), note)

    def _find_checks(self, link: Link) -> None:
        """The questions to the producer of a half message."""
        asked = link.asked
        if asked is None or asked.check_topic is None or asked.ident is None:
            return
        ident = asked.ident

        def note(record: TracedRecord) -> bool:
            if is_check_back(record, ident):
                link.checks.append(record.without_value())
            return len(link.checks) >= MOST_CHECKS

        until_ms = link.controls[0].end.timestamp_ms if link.controls else link.ended_ms
        self._topics.search(self._spans.checks(asked.check_topic, link, until_ms), note)

    def _replay(self, link: Link, end: End) -> list[_Arrival]:
        """The dead letter of a record, and what it was sent in again as."""

        def is_letter(record: TracedRecord) -> bool:
            if is_letter_of(record, link.origin):
                link.letter = record.without_value()
            return link.letter is not None

        self._topics.search(self._spans.letters_near(end.timestamp_ms), is_letter)
        if link.letter is None:
            return []
        place = Place(*link.letter.place[1:])

        def note(record: TracedRecord) -> bool:
            key = read_mark_key(record.key)
            if key is not None and key[1] == place:
                link.replay = read_mark(record.value, record.timestamp_ms)
            return False

        self._topics.search(self._spans.marks(link.letter), note)
        again = None if link.replay is None else read_origin(link.replay.replayed_as)
        return [] if again is None else [_Arrival(again, REPLAYED)]

    def _retries(self, link: Link, delivery: TracedRecord) -> list[_Arrival]:
        """Requests of consumers that could not process what was delivered."""
        group = None if link.record is None else link.record.header(RETRY_GROUP)
        found: list[_Arrival] = []

        def note(record: TracedRecord) -> bool:
            if is_retry_of(record, delivery, group):
                found.append(_Arrival(record.place, RETRIED))
            return len(found) >= MOST_RETRIES

        self._topics.search(self._spans.retries(delivery, self._retries_within_ms), note)
        return found
