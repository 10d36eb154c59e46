"""The steps of a record's story, made from the links of a trace. Pure."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import Origin, read_origin, remedy
from proxy.lineage.links import (
    AFTER_A_GAP,
    HOPPED,
    INGESTED,
    REJECTED,
    REPLAYED,
    Control,
    End,
    Link,
    Trace,
    TracedRecord,
    is_move,
)
from proxy.protocol import headers as header
from proxy.protocol import outcomes
from proxy.protocol.headers import read_traceparent, text_of

DELIVERED: Final = "delivered"
PENDING: Final = "pending"
DELETED: Final = "deleted"
UNREADABLE: Final = "unreadable"
UNKNOWN: Final = "unknown"


class Step(NamedTuple):
    """An event of an ingress record, or of a record made from it. The record at `where` proves
    that the event happened."""

    time_ms: int | None
    what: str
    where: Origin | None
    detail: str
    origin: Origin
    due_ms: int | None = None
    late_ms: int | None = None

    def data(self) -> dict[str, Any]:
        where = None if self.where is None else str(self.where)
        return {**self._asdict(), "where": where, "origin": str(self.origin)}


class Story(NamedTuple):
    """All steps of the chain of records that `origin` belongs to, in order of time."""

    origin: Origin
    state: str
    """DELIVERED, PENDING, UNKNOWN, or the last record's outcome."""
    first_origin: Origin
    trace_id: str | None
    steps: list[Step]
    unknown: list[str]
    is_whole: bool

    def data(self) -> dict[str, Any]:
        """Return JSON values. Times are epoch ms."""
        steps = [step.data() for step in self.steps]
        named = {"origin": str(self.origin), "first_origin": str(self.first_origin)}
        return {**self._asdict(), **named, "steps": steps}


class Storyteller:
    """Makes stories from traces. They show the state at `now_ms`."""

    def __init__(self, names: TopicSettings, now_ms: int) -> None:
        self._names, self._now_ms = names, now_ms

    def story(self, trace: Trace) -> Story:
        steps = [step for link in trace.links for step in self._steps(link, trace)]
        steps.sort(key=lambda step: (step.time_ms is not None, step.time_ms or 0))
        unknown = [*trace.unknown, *(gap for link in trace.links for gap in _gaps(link))]
        records = (link.record or link.delivery for link in trace.links)
        parents = (read_traceparent(one.header(header.TRACEPARENT)) for one in records if one)
        state = self._state(trace.links[-1], is_whole=trace.is_whole)
        trace_id = next((one.trace_id for one in parents if one is not None), None)
        first = trace.links[0].origin
        return Story(trace.named, state, first, trace_id, steps, unknown, trace.is_whole)

    def _steps(self, link: Link, trace: Trace) -> Iterator[Step]:
        if link.arrival != HOPPED or link.record is None:
            yield self._arrival(link)
        if (due := self._due(link, _last_hop(link, trace))) is not None:
            yield due
        yield from self._meanwhile(link)
        if link.delivery is not None:
            yield self._delivered(link, link.delivery)
        elif link.end is not None:
            where, detail = ending(link, link.end)
            yield Step(link.end.timestamp_ms, link.end.what, where, detail, link.origin)
        elif trace.is_whole and _may_wait(link):
            yield self._pending(link)

    def _state(self, link: Link, *, is_whole: bool) -> str:
        if link.delivery is not None:
            return DELIVERED
        if link.end is not None:
            return link.end.what
        return PENDING if is_whole and _may_wait(link) else UNKNOWN

    def _arrival(self, link: Link) -> Step:
        record, origin = link.record, link.origin
        if record is None and _is_skipped(link):
            why = "no client can read its batch, and an operator has skipped it"
            return Step(None, UNREADABLE, origin, why, origin)
        if record is None:
            why = "deleted by retention"
            return Step(None, DELETED, origin, why, origin)
        asks = _request(link)
        what, detail = _retry_name(record), _failure(record, asks)
        if link.arrival in {INGESTED, HOPPED}:
            what, detail = INGESTED, asks
        elif link.arrival == AFTER_A_GAP:
            what, detail = INGESTED, f"rewritten by the proxy; {asks}"
        elif link.arrival == REPLAYED:
            what, detail = "replayed", f"the replayed dead letter; {asks}"
        request = link.request
        is_delivery = request is not None and not request.is_control and request.kind != REJECTED
        due_ms = due_ms_of(link) if is_delivery else None
        return Step(record.timestamp_ms, what, record.place, detail, origin, due_ms)

    def _due(self, link: Link, last: Link) -> Step | None:
        record, due_ms = link.record, due_ms_of(link)
        if record is None or due_ms is None or (link.arrival == HOPPED and not is_move(record)):
            return None
        is_moment = record.timestamp_ms < due_ms <= (last.ended_ms or self._now_ms)
        return Step(due_ms, "due", None, "", link.origin) if is_moment else None

    def _meanwhile(self, link: Link) -> Iterator[Step]:
        for check in link.checks:
            detail = "asked its producer: commit or roll back?"
            what = f"check-back {check.number(header.CHECK)}"
            yield Step(check.timestamp_ms, what, check.place, detail, link.origin)
        if (commit := commit_of(link)) is not None:
            is_gone = commit.kind is None
            detail = "the ingress has deleted this record" if is_gone else ""
            at_ms = committed_ms(link, commit)
            yield Step(at_ms, "committed", commit.applied.origin, detail, link.origin)

    def _delivered(self, link: Link, delivery: TracedRecord) -> Step:
        due_ms, commit = due_ms_of(link), commit_of(link)
        late_ms = None
        if due_ms is not None:
            from_ms = due_ms if commit is None else max(due_ms, committed_ms(link, commit))
            late_ms = delivery.timestamp_ms - from_ms
        is_given_up = delivery.place.topic.startswith(self._names.dlq_prefix)
        detail = "its consumer group gave up" if is_given_up else ""
        time_ms, place = delivery.timestamp_ms, delivery.place
        return Step(time_ms, DELIVERED, place, detail, link.origin, late_ms=late_ms)

    def _pending(self, link: Link) -> Step:
        assert link.request is not None
        assert link.record is not None
        detail, due_ms = "", link.request.due_ms
        if link.request.is_half and not link.controls:
            detail, due_ms = "not committed or rolled back yet", None
        elif due_ms is None:
            detail = "the proxy has not read it yet"
        elif link.record.header(header.HOP_NOT_BEFORE) == header.UNTIL_RESUMED:
            detail, due_ms = "its target is paused", None
        else:
            due_ms = max(due_ms, link.record.number(header.HOP_NOT_BEFORE) or 0)
        return Step(self._now_ms, PENDING, link.origin, detail, link.origin, due_ms)


def _request(link: Link) -> str:
    request = link.request
    assert request is not None
    ident = "" if request.ident is None else f", id {text_of(request.ident)}"
    if request.is_control:
        return f"a {request.kind}{ident}"
    if request.kind == REJECTED:
        return f"a request that the current settings reject{ident}"
    return f"{'half message ' if request.is_half else ''}for {request.target}{ident}"


def _last_hop(link: Link, trace: Trace) -> Link:
    """Return the last known record of the series of hops that begins with `link`. A move, which
    has another due, ends the series."""
    by_origin = {one.origin: one for one in trace.links}
    while link.successor is not None and link.successor in by_origin:
        if link.end is not None and link.end.is_move:
            break
        link = by_origin[link.successor]
    return link


def _may_wait(link: Link) -> bool:
    return link.record is not None and link.unreadable is None


def _is_skipped(link: Link) -> bool:
    """Whether the record lies in a batch that an operator skipped."""
    return link.end is not None and link.end.detail.startswith(outcomes.RECORD_UNREADABLE)


def _gaps(link: Link) -> Iterator[str]:
    if link.record is None:
        why = "it has been deleted by retention"
        if _is_skipped(link):
            why = "its batch cannot be read"
        yield f"When {link.origin} was written and what it asked for: {why}."
        if link.ended_ms is None:
            yield f"How {link.origin} ended: it has no outcome, or its outcome was deleted."
    if link.unreadable is not None and link.ended_ms is None:
        yield f"How {link.origin} ended: its outcome, {link.unreadable}, cannot be read."
    if link.end is not None and link.end.what == outcomes.DEAD_LETTERED and link.letter is None:
        yield f"What the dead letter of {link.origin} holds: the letter was deleted."


def _retry_name(record: TracedRecord) -> str:
    failures = record.number(header.RETRY_ATTEMPT)
    return "retry" if failures is None else f"retry {failures}"


def _failure(record: TracedRecord, request: str) -> str:
    why, group = record.text(header.RETRY_EXCEPTION), record.text(header.RETRY_GROUP)
    return f"the group {group} failed at it{f' ({why})' if why else ''}; {request}"


Words: TypeAlias = tuple[Origin | None, str]
"""The place of the record that shows an end, and a sentence about it."""


def ending(link: Link, end: End) -> Words:
    """Explain an outcome."""
    if end.is_move:
        return end.next_origin, "moved to another time"
    if end.what in {outcomes.ROLLED, outcomes.REQUEUED}:
        why = "before retention could delete it" if end.what == outcomes.ROLLED else end.detail
        return link.successor, why
    if end.what == outcomes.REPLACED:
        return end.next_origin, "a later record with the same id"
    if end.what in {outcomes.CANCELLED, outcomes.ROLLED_BACK}:
        return _taken_back(link, end)
    if end.what in {outcomes.DEAD_LETTERED, outcomes.EXPIRED}:
        return _dead(link, end)
    if end.what in {outcomes.APPLIED, outcomes.MISSED}:
        ended = link.ended_by_it
        return (ended.origin, f"that record ended as {ended.what}") if ended else (None, end.detail)
    return end.place, end.detail


def _taken_back(link: Link, end: End) -> Words:
    if end.detail.startswith(outcomes.PURGED_BY):
        return read_origin(end.detail.removeprefix(outcomes.PURGED_BY)), "purged"
    control = _ender(link)
    if control is None:
        return None, "it is unknown by which record"
    return control.applied.origin, end.detail


def _dead(link: Link, end: End) -> Words:
    letter = link.letter
    if letter is None:
        return None, end.detail
    code, detail = letter.text(header.ERROR) or "", letter.text(header.ERROR_DETAIL) or ""
    return letter.place, f"{code}: {detail}. {remedy(code)}"


def due_ms_of(link: Link) -> int | None:
    """Return the due that the proxy wrote in the delivery or outcome. If it wrote none, return the
    request's due under today's settings."""
    if link.delivery is not None and (stamp_ms := link.delivery.number(header.DUE)) is not None:
        return stamp_ms
    if link.end is not None and link.end.due_ms is not None:
        return link.end.due_ms
    return None if link.request is None else link.request.due_ms


def commit_of(link: Link) -> Control | None:
    """Return a half message's first commit. A later commit may be of another record with its id."""
    ender = _ender(link)
    decided = (one for one in link.controls if one is not ender)
    return next((one for one in decided if one.kind in {None, "commit"}), None)


def committed_ms(link: Link, commit: Control) -> int:
    """Return the commit's time, but no later time than the delivery's. The commit's outcome may
    have a later timestamp."""
    return min(commit.applied.timestamp_ms, link.ended_ms or commit.applied.timestamp_ms)


def _ender(link: Link) -> Control | None:
    kinds = {
        outcomes.CANCELLED: {"cancel", "recall"},
        outcomes.ROLLED_BACK: {"rollback"},
        outcomes.EXPIRED: {"expire"},
    }
    wanted = None if link.end is None else kinds.get(link.end.what)
    if wanted is None:
        return None
    found = (control for control in link.controls if control.kind in {*wanted, None})
    return next(found, None)
