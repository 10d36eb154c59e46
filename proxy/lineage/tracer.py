"""The trace of a record through the topics.

A history is an ingress record of the trace with its outcome, delivery and control records.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Final, NamedTuple

from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings, TopicSettings
from proxy.dead_letters.letter import Origin, Place, read_origin
from proxy.dead_letters.replay_plan import read_mark, read_mark_key
from proxy.dispatch.partitioning import partition_of
from proxy.errors import ProxyError
from proxy.kafka.access import TopicUnknown
from proxy.lineage import histories
from proxy.lineage.histories import (
    Control,
    End,
    History,
    NotAllRead,
    Request,
    TimeSpan,
    Trace,
    TracedRecord,
)
from proxy.lineage.story import Story, Storyteller
from proxy.lineage.topics import KafkaTopics
from proxy.protocol import headers as header
from proxy.protocol.outcomes import APPLIED, DEAD_LETTERED, EXPIRED, MISSED
from proxy.protocol.request_reader import RequestReader

MOST_STEPS_BACK: Final = 10_000
MOST_HISTORIES: Final = 1_000
MOST_CONTROLS: Final = 20
MOST_CHECKS: Final = 1_000
MOST_RETRIES: Final = 100
CLOCKS_APART_MS: Final = 60_000
"""The timestamps of records come from several clocks. Two clocks may differ by this much."""


def trace_record(
    topics: KafkaTopics, settings: Settings, named: Origin, retries_within_ms: int, now_ms: int
) -> Story:
    """Trace the record at `named`: an ingress record, a delivery or a dead letter. A retry is found
    if the consumer wrote it within `retries_within_ms` after the delivery. Raises NoSuchRecord, and
    errors of `topics`."""
    names, policy = settings.topics, replace(policy_of(settings, None), roll_after_ms=None)
    origin = find_beginning(topics, named, names.ingress, settings.bootstrap_servers)
    there = topics.offsets(origin.topic, origin.partition)
    tracer = Tracer(topics, names, RequestReader(policy), retries_within_ms)
    found = tracer.trace(origin)
    refuse_unrecorded(found, there, names.outcomes)
    return Storyteller(names, now_ms).story(found)


class NoSuchRecord(ProxyError):
    """The place has no record that the proxy knows."""


def find_beginning(topics: KafkaTopics, named: Origin, ingress: str, bootstrap: str) -> Origin:
    """Return `named` if it is a place in the ingress, else the origin of the record there. Raises
    TopicUnknown, NoSuchRecord.

    A place in the ingress is not read, because its record may be deleted or unreadable, and still
    have an outcome.
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
    origin = record.origin(header.ORIGIN)
    if origin is None or origin.topic != ingress:
        raise NoSuchRecord(
            f"{named} does not come from a record of {ingress}: its header {header.ORIGIN} "
            + ("is missing." if origin is None else f"is {origin}."),
            "Name the proxy's settings file with --config if its ingress topic has another name.",
        )
    return origin


def refuse_unrecorded(trace: Trace, there: range, outcomes: str) -> None:
    """Raise NoSuchRecord if nothing is known about the record."""
    if (
        any(history.record or history.ended_ms is not None for history in trace.histories)
        or not trace.is_whole
    ):
        return
    named = trace.named
    if named.offset in there:
        raise NoSuchRecord(*_nothing_at(named, there))
    raise NoSuchRecord(
        f"{named} has been deleted: partition {named.partition} of {named.topic} begins at "
        f"offset {there.start}. No outcome in {outcomes} names it.",
        "The record was delivered, or its outcome has been deleted, too. If you have the delivered "
        "record, trace it by its place in the target topic.",
    )


def _nothing_at(named: Origin, there: range) -> tuple[str, str]:
    at = f"No record lies at {named}"
    if named.offset in there:
        why = "the offset belongs to an aborted transaction or a transaction marker"
        return f"{at} that can be read: {why}.", "Try the next offset."
    if not there:
        return f"{at}: partition {named.partition} of {named.topic} is empty.", ""
    holds = f"holds offsets {there.start} to {there.stop - 1}"
    return (
        f"{at}: partition {named.partition} of {named.topic} {holds}.",
        "Retention has deleted lower offsets. Higher offsets are not written or not committed yet.",
    )


class Spans:
    """Finds the parts of topics in which related records may lie. `partitions_of` returns 0 for a
    missing topic."""

    def __init__(self, names: TopicSettings, partitions_of: Callable[[str], int]) -> None:
        self._names, self._partitions_of = names, partitions_of

    def between(self, topic: str, from_ms: int | None, until_ms: int | None) -> list[TimeSpan]:
        """Return the span of a topic between two times, with a margin for clocks that differ. The
        list is empty if the topic is missing."""
        if not self._partitions_of(topic):
            return []
        first = None if from_ms is None else from_ms - CLOCKS_APART_MS
        last = None if until_ms is None else until_ms + CLOCKS_APART_MS
        return [TimeSpan(topic, first, last)]

    def near(self, topic: str, time_ms: int) -> list[TimeSpan]:
        return self.between(topic, time_ms, time_ms)

    def ends(self, history: History) -> Iterator[list[TimeSpan]]:
        """Yield lists of spans in which the outcome or delivery of a history may lie.

        The first list has the partitions to which the keys map now. The second list has all
        others, because a record may have been written when its topic had fewer partitions."""
        record, request = history.record, history.request
        from_ms = None if record is None else record.timestamp_ms - CLOCKS_APART_MS
        outcomes = self._by_key(self._names.outcomes, str(history.origin).encode(), from_ms)
        target = [] if request is None else self._target(request)
        for choice in zip_longest(outcomes, target):
            if there := [span for span in choice if span is not None and span.partitions]:
                yield there

    def controls(self, history: History) -> list[TimeSpan]:
        record, ended_ms = history.record, history.ended_ms
        from_ms = ended_ms
        if record is not None and (history.is_half or record.header(header.HOP_FROM) is not None):
            from_ms = record.timestamp_ms
        return self.between(self._names.outcomes, from_ms, ended_ms)

    def retries(self, delivery: TracedRecord, within_ms: int) -> list[TimeSpan]:
        until_ms = delivery.timestamp_ms + within_ms
        ingress = self._names.ingress
        if delivery.key is None:
            return self.between(ingress, delivery.timestamp_ms, until_ms)
        from_ms = delivery.timestamp_ms - CLOCKS_APART_MS
        own = self._by_key(ingress, delivery.key, from_ms)[0]
        return [own._replace(until_ms=until_ms)] if own.partitions else []

    def _target(self, request: Request) -> list[TimeSpan]:
        topic, due_ms = request.target, request.due_ms
        if topic is None:
            return []
        from_ms = None if due_ms is None else due_ms - CLOCKS_APART_MS
        if request.partition >= 0:
            is_there = request.partition < self._partitions_of(topic)
            return [TimeSpan(topic, from_ms, None, (request.partition,))] if is_there else []
        return self._by_key(topic, request.key, from_ms)

    def _by_key(self, topic: str, key: bytes | None, from_ms: int | None) -> list[TimeSpan]:
        """Return a span of the key's partition and a span of the other partitions. Without a key,
        return one span of all partitions."""
        count = self._partitions_of(topic)
        everywhere = TimeSpan(topic, from_ms, None, tuple(range(count)))
        if key is None or not count:
            return [everywhere]
        own = partition_of(key, count)
        others = tuple(number for number in range(count) if number != own)
        return [everywhere._replace(partitions=(own,)), everywhere._replace(partitions=others)]


class Ingested(NamedTuple):
    """An ingress record without its value, and its request."""

    record: TracedRecord
    request: Request


class Tracer:
    """Traces records forward and back."""

    def __init__(
        self,
        topics: KafkaTopics,
        names: TopicSettings,
        reader: RequestReader,
        retries_within_ms: int,
    ) -> None:
        self._topics, self._names, self._reader = topics, names, reader
        self._spans = Spans(names, topics.partitions_of)
        self._retries_within_ms = retries_within_ms
        self._ingested: dict[Origin, Ingested | None] = {}
        self._successors: dict[Origin, Origin] = {}
        """Rewritten record -> its successor."""

    def trace(self, origin: Origin) -> Trace:
        trace = Trace(origin)
        if not self._topics.partitions_of(self._names.outcomes):
            trace.unknown.append(f"All outcomes: there is no topic {self._names.outcomes}.")
        try:
            self._follow_all(trace, origin)
        except NotAllRead as late:
            trace.is_whole = False
            trace.unknown.append(f"What came after the last step. {late}")
        unread = self._topics.unread()
        trace.unknown += unread
        trace.is_whole = trace.is_whole and not unread
        return trace

    def _follow_all(self, trace: Trace, origin: Origin) -> None:
        if self._took_no_place(origin):
            self._follow(trace, origin)
            return
        root = self._root(trace, origin)
        self._follow(trace, root)
        if origin not in {history.origin for history in trace.histories}:
            trace.unknown.append(f"How the record went on from {root} to {origin}.")
            self._follow(trace, origin)

    def _read(self, origin: Origin) -> Ingested | None:
        """Return an ingress record, or None if it is deleted. Read each record only once."""
        if origin not in self._ingested:
            record = self._topics.at(origin)
            self._ingested[origin] = None
            if record is not None:
                request = histories.read_request(record, self._reader)
                self._ingested[origin] = Ingested(record.without_value(), request)
        return self._ingested[origin]

    def _root(self, trace: Trace, origin: Origin) -> Origin:
        """Return the first record of the trace."""
        root, seen = origin, {origin}
        while (before := self._before(trace, root)) is not None and before not in seen:
            seen.add(before)
            root = before
            if len(seen) > MOST_STEPS_BACK:
                most = f"a trace goes back at most {MOST_STEPS_BACK:,} records"
                trace.unknown.append(f"What was before {before}, because {most}.")
                break
        return root

    def _before(self, trace: Trace, origin: Origin) -> Origin | None:
        here = self._read(origin)
        before = None if here is None else histories.predecessor_of(here.record)
        if here is None or before is None:
            return None
        if here.record.header(header.HOP_FROM) is not None:
            return self._rewritten(trace, here.record, before)
        if before.topic == self._names.ingress:
            return before
        failed = self._topics.at(before)
        if failed is None:
            trace.unknown.append(f"What was before the retry: {before} was deleted.")
            return None
        return failed.origin(header.ORIGIN)

    def _rewritten(self, trace: Trace, record: TracedRecord, before: Origin) -> Origin:
        """Return the record that `record` continues: `before`. But the successor of a half message
        names the message's commit as `before`. Then return the first origin, the half message."""
        first = record.origin(header.FIRST_ORIGIN)
        ingested = self._read(before)
        if ingested is not None and ingested.request.kind == "commit" and first is not None:
            before = first
        self._successors[before] = record.place
        if ingested is None and first not in {None, before}:
            trace.unknown.append(f"What lies between {first}, the first origin, and {before}.")
        return before

    def _took_no_place(self, origin: Origin) -> bool:
        """Whether the record at `origin` is a move that came too late."""
        found = self._read(origin)
        if found is None or not histories.is_move(found.record):
            return False
        history = History(origin, histories.INGESTED, *found)
        self._find_end(history)
        return history.end is not None and history.end.what == MISSED

    def _follow(self, trace: Trace, start: Origin) -> None:
        coming = deque([History(start, histories.INGESTED)])
        seen = {history.origin for history in trace.histories}
        while coming:
            history = coming.popleft()
            if history.origin in seen:
                continue
            if len(trace.histories) >= MOST_HISTORIES:
                most = f"a trace has at most {MOST_HISTORIES:,} records"
                trace.unknown.append(
                    f"What came from {history.origin} on, because {most}. To see more, trace "
                    f"{history.origin}."
                )
                return
            seen.add(history.origin)
            coming.extend(self._look(trace, history))

    def _look(self, trace: Trace, history: History) -> list[History]:
        """Complete a history, and return the histories that follow it."""
        trace.histories.append(history)
        if (ingested := self._read(history.origin)) is not None:
            history.record, history.request = ingested
        self._find_end(history)
        self._find_controls(history)
        self._find_checks(history)
        if history.delivery is not None:
            return self._retries(history, history.delivery)
        if history.end is not None and history.end.what in {DEAD_LETTERED, EXPIRED}:
            return self._replay(history, history.end)
        goes_on = history.record is None if history.end is None else history.end.is_hop
        return self._successor(trace, history) if goes_on else []

    def _find_end(self, history: History) -> None:
        """Find the history's outcome or delivery. If its successor is known, look first near the
        successor's time."""
        origin, key = history.origin, str(history.origin).encode()

        def is_end(record: TracedRecord) -> bool:
            if record.place.topic == self._names.outcomes:
                if record.key == key:
                    history.end = histories.outcome_in(record)
                    history.unreadable = record.place if history.end is None else None
            elif histories.is_end_of(record, origin, as_letter=False):
                history.delivery = record.without_value()
            return history.ended_ms is not None

        if (after := self._successors.get(origin)) and (successor := self._read(after)):
            near = self._spans.near(self._names.outcomes, successor.record.timestamp_ms)
            self._topics.search(near, is_end)
        for spans in self._spans.ends(history):
            if history.ended_ms is None:
                self._topics.search(spans, is_end)

    def _successor(self, trace: Trace, history: History) -> list[History]:
        """Return the next record of the trace that still exists. The successor and the old record's
        outcome have nearly the same timestamp, because one transaction wrote both records."""
        origin, ended_ms = history.origin, history.ended_ms
        later: list[Origin] = []

        def goes_on(record: TracedRecord) -> bool:
            if histories.is_successor_of(record, origin, is_half=history.is_half):
                history.successor = record.place
            elif record.text(header.FIRST_ORIGIN) == str(origin):
                later.append(record.place)
            is_past = ended_ms is None or record.timestamp_ms > ended_ms + CLOCKS_APART_MS
            return history.successor is not None or (is_past and bool(later))

        history.successor = self._successors.get(origin)
        if history.end is not None and history.end.is_move:
            history.successor = history.end.next_origin
        if history.successor is None:
            from_ms = None if ended_ms is None else ended_ms - CLOCKS_APART_MS
            span = TimeSpan(origin.topic, from_ms, None, (origin.partition,))
            self._topics.search([span], goes_on)
        if history.successor is not None:
            return [
                History(
                    history.successor,
                    histories.AFTER_A_GAP if history.end is None else histories.HOPPED,
                )
            ]
        if history.end is not None:
            trace.unknown.append(f"What came right after {origin}: its successor was not found.")
        return [History(place, histories.AFTER_A_GAP) for place in later[:1]]

    def _find_controls(self, history: History) -> None:
        """Find the control records that decided about a record. For a control record, find the
        outcome of the record that it ended."""
        request, end = history.request, history.end
        if request is not None and request.is_control:
            self._find_ended(history)
            return
        if not (history.is_half or (end is not None and end.what in histories.BY_ANOTHER)):
            return
        first = (
            history.origin
            if history.record is None
            else histories.hop_from(history.record) or history.origin
        )

        def note(record: TracedRecord) -> bool:
            found = histories.outcome_in(record)
            if found is not None and found.what == APPLIED and found.origin.offset > first.offset:
                control = self._control(history, found)
                history.controls += [] if control is None else [control]
            return len(history.controls) >= MOST_CONTROLS

        self._topics.search(self._spans.controls(history), note)
        history.controls.sort(key=lambda control: control.applied.origin.offset)

    def _control(self, history: History, applied: End) -> Control | None:
        """Return the control record with the outcome `applied`, if it acted on the history's record
        by id or origin."""
        ident = _ident(history)
        by_id = ident is not None and histories.is_about(applied, history.origin, ident)
        if not by_id and not histories.is_about(applied, history.origin, None):
            return None
        ingested = self._read(applied.origin)
        if by_id or ingested is None:
            kind = None if ingested is None else ingested.request.kind
            return Control(applied, kind) if by_id else None
        names = {str(history.origin), history.record and history.record.text(header.FIRST_ORIGIN)}
        recalled = applied.origin._replace(offset=ingested.request.recalled or 0)
        is_its = ingested.request.kind == "recall" and str(recalled) in names
        return Control(applied, ingested.request.kind) if is_its else None

    def _find_ended(self, history: History) -> None:
        end, ident = history.end, _ident(history)
        recalled = None if history.request is None else history.request.recalled
        if end is None or end.what != APPLIED or (ident is None and recalled is None):
            return

        def note(record: TracedRecord) -> bool:
            found = histories.outcome_in(record)
            if (
                found is not None
                and found.what in histories.BY_ANOTHER
                and found.origin.offset < history.origin.offset
                and (recalled is not None or histories.is_about(found, history.origin, ident))
                and recalled in (None, found.origin.offset)
            ):
                history.ended_by_it = found
            return False

        self._topics.search(self._spans.near(self._names.outcomes, end.timestamp_ms), note)

    def _find_checks(self, history: History) -> None:
        request = history.request
        if request is None or request.check_topic is None or request.ident is None:
            return
        ident = request.ident

        def note(record: TracedRecord) -> bool:
            if histories.is_check_back(record, ident):
                history.checks.append(record.without_value())
            return len(history.checks) >= MOST_CHECKS

        from_ms = None if history.record is None else history.record.timestamp_ms
        until_ms = (
            history.controls[0].applied.timestamp_ms if history.controls else history.ended_ms
        )
        self._topics.search(self._spans.between(request.check_topic, from_ms, until_ms), note)

    def _replay(self, history: History, end: End) -> list[History]:

        def is_letter(record: TracedRecord) -> bool:
            if histories.is_end_of(record, history.origin, as_letter=True):
                history.letter = record.without_value()
            return history.letter is not None

        names = self._names
        self._topics.search(self._spans.near(names.dead_letters, end.timestamp_ms), is_letter)
        if history.letter is None:
            return []
        place = Place(*history.letter.place[1:])

        def note(record: TracedRecord) -> bool:
            key = read_mark_key(record.key)
            if key is not None and key[1] == place:
                history.replay = read_mark(record.value, record.timestamp_ms)
            return False

        written_ms = history.letter.timestamp_ms
        self._topics.search(self._spans.between(names.replay_marks, written_ms, None), note)
        again = None if history.replay is None else read_origin(history.replay.replayed_as)
        return [] if again is None else [History(again, histories.REPLAYED)]

    def _retries(self, history: History, delivery: TracedRecord) -> list[History]:
        group = None if history.record is None else history.record.header(header.RETRY_GROUP)
        found: list[History] = []

        def note(record: TracedRecord) -> bool:
            if histories.is_retry_of(record, delivery, group):
                found.append(History(record.place, histories.RETRIED))
            return len(found) >= MOST_RETRIES

        self._topics.search(self._spans.retries(delivery, self._retries_within_ms), note)
        return found


def _ident(history: History) -> bytes | None:
    if history.request is not None:
        return history.request.ident
    ident = None if history.end is None else history.end.ident
    return None if ident is None else ident.encode()
