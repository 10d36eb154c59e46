"""Story: all events of a trace, in order of time. `histories` defines the trace. Pure."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import Origin, read_origin, remedy
from proxy.lineage.histories import (
    AFTER_A_GAP,
    HOPPED,
    INGESTED,
    REJECTED,
    REPLAYED,
    Control,
    End,
    History,
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
    """All steps of the trace that `origin` belongs to, in order of time."""

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
    """Makes stories from traces. A story shows the state at `now_ms`."""

    def __init__(self, names: TopicSettings, now_ms: int) -> None:
        self._names, self._now_ms = names, now_ms

    def story(self, trace: Trace) -> Story:
        steps = [step for history in trace.histories for step in self._steps(history, trace)]
        steps.sort(key=lambda step: (step.time_ms is not None, step.time_ms or 0))
        unknown = [*trace.unknown, *(gap for history in trace.histories for gap in _gaps(history))]
        records = (history.record or history.delivery for history in trace.histories)
        parents = (read_traceparent(one.header(header.TRACEPARENT)) for one in records if one)
        state = self._state(trace.histories[-1], is_whole=trace.is_whole)
        trace_id = next((one.trace_id for one in parents if one is not None), None)
        first = trace.histories[0].origin
        return Story(trace.named, state, first, trace_id, steps, unknown, trace.is_whole)

    def _steps(self, history: History, trace: Trace) -> Iterator[Step]:
        if history.arrival != HOPPED or history.record is None:
            yield self._arrival(history)
        if (due := self._due(history, _last_hop(history, trace))) is not None:
            yield due
        yield from self._meanwhile(history)
        if history.delivery is not None:
            yield self._delivered(history, history.delivery)
        elif history.end is not None:
            yield _ended(history, history.end, trace)
        elif trace.is_whole and _may_wait(history):
            yield self._pending(history)

    def _state(self, history: History, *, is_whole: bool) -> str:
        if history.delivery is not None:
            return DELIVERED
        if history.end is not None:
            return history.end.what
        return PENDING if is_whole and _may_wait(history) else UNKNOWN

    def _arrival(self, history: History) -> Step:
        record, origin = history.record, history.origin
        if record is None and _is_skipped(history):
            why = "no client can read its batch, and an operator has skipped it"
            return Step(None, UNREADABLE, origin, why, origin)
        if record is None:
            why = "deleted by retention"
            return Step(None, DELETED, origin, why, origin)
        asks = _request(history)
        what, detail = _retry_name(record), _failure(record, asks)
        if history.arrival in {INGESTED, HOPPED}:
            what, detail = INGESTED, asks
        elif history.arrival == AFTER_A_GAP:
            what, detail = INGESTED, f"rewritten by the proxy; {asks}"
        elif history.arrival == REPLAYED:
            what, detail = "replayed", f"the replayed dead letter; {asks}"
        request = history.request
        is_delivery = request is not None and not request.is_control and request.kind != REJECTED
        due_ms = due_ms_of(history) if is_delivery else None
        return Step(record.timestamp_ms, what, record.place, detail, origin, due_ms)

    def _due(self, history: History, last: History) -> Step | None:
        record, due_ms = history.record, due_ms_of(history)
        if record is None or due_ms is None or (history.arrival == HOPPED and not is_move(record)):
            return None
        is_moment = record.timestamp_ms < due_ms <= (last.ended_ms or self._now_ms)
        return Step(due_ms, "due", None, "", history.origin) if is_moment else None

    def _meanwhile(self, history: History) -> Iterator[Step]:
        for check in history.checks:
            detail = "asked its producer: commit or roll back?"
            what = f"check-back {check.number(header.CHECK)}"
            yield Step(check.timestamp_ms, what, check.place, detail, history.origin)
        if (commit := commit_of(history)) is not None:
            is_gone = commit.kind is None
            detail = "the ingress has deleted this record" if is_gone else ""
            at_ms = committed_ms(history, commit)
            yield Step(at_ms, "committed", commit.applied.origin, detail, history.origin)

    def _delivered(self, history: History, delivery: TracedRecord) -> Step:
        due_ms, commit = due_ms_of(history), commit_of(history)
        late_ms = None
        if due_ms is not None:
            from_ms = due_ms if commit is None else max(due_ms, committed_ms(history, commit))
            late_ms = delivery.timestamp_ms - from_ms
        is_given_up = delivery.place.topic.startswith(self._names.dlq_prefix)
        detail = "its consumer group gave up" if is_given_up else ""
        time_ms, place = delivery.timestamp_ms, delivery.place
        return Step(time_ms, DELIVERED, place, detail, history.origin, late_ms=late_ms)

    def _pending(self, history: History) -> Step:
        assert history.request is not None
        assert history.record is not None
        detail, due_ms = "", history.request.due_ms
        if history.request.is_half and not history.controls:
            detail, due_ms = "not committed or rolled back yet", None
        elif due_ms is None:
            detail = "the proxy has not read it yet"
        elif history.record.header(header.HOP_NOT_BEFORE) == header.UNTIL_RESUMED:
            detail, due_ms = "its target is paused", None
        else:
            due_ms = max(due_ms, history.record.number(header.HOP_NOT_BEFORE) or 0)
        return Step(self._now_ms, PENDING, history.origin, detail, history.origin, due_ms)


def _request(history: History) -> str:
    request = history.request
    assert request is not None
    ident = "" if request.ident is None else f", id {text_of(request.ident)}"
    if request.is_control:
        return f"a {request.kind}{ident}"
    if request.kind == REJECTED:
        return f"a request that the current settings reject{ident}"
    return f"{'half message ' if request.is_half else ''}for {request.target}{ident}"


def _last_hop(history: History, trace: Trace) -> History:
    """Return the last known record of the series of hops that begins with `history`. A move, which
    has another due, ends the series."""
    by_origin = {one.origin: one for one in trace.histories}
    while history.successor is not None and history.successor in by_origin:
        if history.end is not None and history.end.is_move:
            break
        history = by_origin[history.successor]
    return history


def _ended(history: History, end: End, trace: Trace) -> Step:
    """Return the step of an outcome. A move may be delivered before the outcome of the moved record
    is written. So the step has the earlier of the two timestamps, and the move's due."""
    where, detail = ending(history, end)
    time_ms, due_ms = end.timestamp_ms, None
    if end.is_move:
        moved = next((one for one in trace.histories if one.origin == end.next_origin), None)
        if moved is not None and moved.record is not None:
            time_ms, due_ms = min(time_ms, moved.record.timestamp_ms), due_ms_of(moved)
    return Step(time_ms, end.what, where, detail, history.origin, due_ms)


def _may_wait(history: History) -> bool:
    return history.record is not None and history.unreadable is None


def _is_skipped(history: History) -> bool:
    """Whether the record lies in a batch that an operator skipped."""
    return history.end is not None and history.end.detail.startswith(outcomes.RECORD_UNREADABLE)


def _gaps(history: History) -> Iterator[str]:
    if history.record is None:
        why = "retention has deleted the record"
        if _is_skipped(history):
            why = "the record's batch cannot be read"
        yield f"The time and the request of {history.origin}: {why}."
        if history.ended_ms is None:
            yield f"How {history.origin} ended: it has no outcome, or its outcome was deleted."
    if history.unreadable is not None and history.ended_ms is None:
        yield f"How {history.origin} ended: its outcome, {history.unreadable}, cannot be read."
    if (
        history.end is not None
        and history.end.what == outcomes.DEAD_LETTERED
        and history.letter is None
    ):
        yield f"What the dead letter of {history.origin} holds: the letter was deleted."


def _retry_name(record: TracedRecord) -> str:
    failures = record.number(header.RETRY_ATTEMPT)
    return "retry" if failures is None else f"retry {failures}"


def _failure(record: TracedRecord, request: str) -> str:
    why, group = record.text(header.RETRY_EXCEPTION), record.text(header.RETRY_GROUP)
    return f"consumers of {group} failed at the record{f' ({why})' if why else ''}; {request}"


Words: TypeAlias = tuple[Origin | None, str]
"""The place of the record that shows an end, and a sentence about the end."""


def ending(history: History, end: End) -> Words:
    """Explain an outcome."""
    if end.is_move:
        return end.next_origin, "moved to another time"
    if end.what in {outcomes.ROLLED, outcomes.REQUEUED}:
        why = "before retention could delete it" if end.what == outcomes.ROLLED else end.detail
        return history.successor, why
    if end.what == outcomes.REPLACED:
        return end.next_origin, "a later record with the same id"
    if end.what in {outcomes.CANCELLED, outcomes.ROLLED_BACK}:
        return _taken_back(history, end)
    if end.what in {outcomes.DEAD_LETTERED, outcomes.EXPIRED}:
        return _dead(history, end)
    if end.what in {outcomes.APPLIED, outcomes.MISSED}:
        ended = history.ended_by_it
        return (ended.origin, f"that record ended as {ended.what}") if ended else (None, end.detail)
    return end.place, end.detail


def _taken_back(history: History, end: End) -> Words:
    if end.detail.startswith(outcomes.PURGED_BY):
        return read_origin(end.detail.removeprefix(outcomes.PURGED_BY)), "purged"
    control = _ender(history)
    if control is None:
        return None, "it is unknown by which record"
    return control.applied.origin, end.detail


def _dead(history: History, end: End) -> Words:
    letter = history.letter
    if letter is None:
        return None, end.detail
    code, detail = letter.text(header.ERROR) or "", letter.text(header.ERROR_DETAIL) or ""
    return letter.place, f"{code}: {detail}. {remedy(code)}"


def due_ms_of(history: History) -> int | None:
    """Return the due that the proxy wrote in the delivery or outcome. If it wrote none, return the
    request's due under today's settings."""
    if (
        history.delivery is not None
        and (stamp_ms := history.delivery.number(header.DUE)) is not None
    ):
        return stamp_ms
    if history.end is not None and history.end.due_ms is not None:
        return history.end.due_ms
    return None if history.request is None else history.request.due_ms


def commit_of(history: History) -> Control | None:
    """Return a half message's first commit. A later commit may be for another record with the same
    id."""
    ender = _ender(history)
    decided = (one for one in history.controls if one is not ender)
    return next((one for one in decided if one.kind in {None, "commit"}), None)


def committed_ms(history: History, commit: Control) -> int:
    """Return the timestamp of the commit's outcome, or of the delivery if the delivery's is
    earlier."""
    return min(commit.applied.timestamp_ms, history.ended_ms or commit.applied.timestamp_ms)


def _ender(history: History) -> Control | None:
    kinds = {
        outcomes.CANCELLED: {"cancel", "recall"},
        outcomes.ROLLED_BACK: {"rollback"},
        outcomes.EXPIRED: {"expire"},
    }
    wanted = None if history.end is None else kinds.get(history.end.what)
    if wanted is None:
        return None
    found = (control for control in history.controls if control.kind in {*wanted, None})
    return next(found, None)
