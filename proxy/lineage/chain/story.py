"""The steps of a record's story, made of what was found. Reads nothing."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from proxy.client.retries.received import ATTEMPT, EXCEPTION
from proxy.config.settings import TopicSettings
from proxy.dead_letters.letters.letter import Origin
from proxy.lineage.chain.asked import HALF_MESSAGE, REJECTED
from proxy.lineage.chain.ending import commit_of, committed_ms, due_ms_of, ending
from proxy.lineage.chain.link import (
    AFTER_A_GAP,
    HOPPED,
    INGESTED,
    REPLAYED,
    RETRIED,
    Link,
    Trace,
)
from proxy.lineage.chain.matching import is_move
from proxy.lineage.chain.traced_record import TracedRecord
from proxy.protocol.headers import (
    CHECK,
    HOP_NOT_BEFORE,
    PARKED,
    RETRY_GROUP,
    TRACEPARENT,
    read_traceparent,
)
from proxy.protocol.outcomes import DEAD_LETTERED, RECORD_UNREADABLE

DELIVERED: Final = "delivered"
WAITING: Final = "waiting"
DELETED: Final = "deleted"
UNREADABLE: Final = "unreadable"
UNKNOWN: Final = "unknown"


class Step(NamedTuple):
    """One thing that happened to the ingress record at `origin`, or to what was made of it.

    time_ms None: not known. where: the record that shows it. detail: in words, without any time.
    due_ms: until when it waits, of what is asked for and of what waits. late_ms: of a delivery.
    """

    time_ms: int | None
    what: str
    where: Origin | None
    detail: str
    origin: Origin
    due_ms: int | None = None
    late_ms: int | None = None

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "time_ms": self.time_ms,
            "what": self.what,
            "where": None if self.where is None else str(self.where),
            "detail": self.detail,
            "origin": str(self.origin),
            "due_ms": self.due_ms,
            "late_ms": self.late_ms,
        }


class Story(NamedTuple):
    """All steps in order of time.

    state: how it stands with the record that came last: DELIVERED, WAITING, UNKNOWN or the name
    of an outcome. unknown: what cannot be told. is_whole: all was read that was to be read.
    """

    state: str
    first_origin: Origin
    trace_id: str | None
    steps: list[Step]
    unknown: list[str]
    is_whole: bool

    def data(self, asked: Origin) -> dict[str, Any]:
        """For programs, as the answer to a question about `asked`."""
        return {
            "origin": str(asked),
            "first_origin": str(self.first_origin),
            "state": self.state,
            "trace_id": self.trace_id,
            "steps": [step.data() for step in self.steps],
            "unknown": self.unknown,
            "is_whole": self.is_whole,
        }


class Storyteller:
    """For the proxy whose topics are `names`, at `now_ms`."""

    def __init__(self, names: TopicSettings, now_ms: int) -> None:
        self._names, self._now_ms = names, now_ms

    def story(self, trace: Trace) -> Story:
        """The story of what was found; at least one link."""
        steps = [step for link in trace.links for step in self._steps(link, trace)]
        steps.sort(key=lambda step: (step.time_ms is not None, step.time_ms or 0))
        unknown = [*trace.unknown, *(gap for link in trace.links for gap in _gaps(link))]
        ids = (_trace_id(link) for link in trace.links)
        state = self._state(trace.links[-1], is_whole=trace.is_whole)
        trace_id = next((one for one in ids if one is not None), None)
        first = trace.links[0].origin
        return Story(state, first, trace_id, steps, unknown, trace.is_whole)

    def _steps(self, link: Link, trace: Trace) -> Iterator[Step]:
        """Of one ingress record; a hop is told by the record that it was made from."""
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
            yield self._waiting(link)

    def _state(self, link: Link, *, is_whole: bool) -> str:
        if link.delivery is not None:
            return DELIVERED
        if link.end is not None:
            return link.end.what
        return WAITING if is_whole and _may_wait(link) else UNKNOWN

    def _arrival(self, link: Link) -> Step:
        record = link.record
        if record is None:
            if _is_skipped(link):
                why = "no client can read its batch, and an operator has had it skipped"
                return Step(None, UNREADABLE, link.origin, why, link.origin)
            why = "deleted by retention: it cannot be read any more"
            return Step(None, DELETED, link.origin, why, link.origin)
        what, detail = {
            INGESTED: (INGESTED, self._request(link)),
            HOPPED: (INGESTED, self._request(link)),
            AFTER_A_GAP: (INGESTED, f"written by the proxy to go on; {self._request(link)}"),
            REPLAYED: ("replayed", f"the dead letter, sent in again; {self._request(link)}"),
            RETRIED: (_retry_name(record), _failure(record, self._request(link))),
        }[link.arrival]
        return Step(
            record.timestamp_ms, what, record.place, detail, link.origin, self._asked_ms(link)
        )

    def _request(self, link: Link) -> str:
        """What the record asks for."""
        asked = link.asked
        assert asked is not None
        ident = "" if asked.ident is None else f", id {_shown(asked.ident)}"
        if asked.is_control:
            return f"a {asked.kind}{ident}"
        if asked.kind == REJECTED:
            return f"a request that today's settings reject{ident}"
        kind = "half message " if asked.kind == HALF_MESSAGE else ""
        return f"{kind}for {asked.target}{ident}"

    def _asked_ms(self, link: Link) -> int | None:
        """When it is to be delivered, of a record that asks for delivery."""
        asked = link.asked
        is_delivery = asked is not None and not asked.is_control and asked.kind != REJECTED
        return due_ms_of(link) if is_delivery else None

    def _due(self, link: Link, last: Link) -> Step | None:
        """Where it is a moment of its own: after it was written, and before `last` ended."""
        record, due_ms = link.record, due_ms_of(link)
        if record is None or due_ms is None or (link.arrival == HOPPED and not is_move(record)):
            return None
        is_moment = record.timestamp_ms < due_ms <= (last.ended_ms or self._now_ms)
        return Step(due_ms, "due", None, "", link.origin) if is_moment else None

    def _meanwhile(self, link: Link) -> Iterator[Step]:
        """Check-backs and the decision about a half message."""
        for check in link.checks:
            detail = "asked its producer: commit or roll back?"
            what = f"check-back {check.number(CHECK)}"
            yield Step(check.timestamp_ms, what, check.place, detail, link.origin)
        if (commit := commit_of(link)) is not None:
            is_gone = commit.kind is None
            detail = "the ingress has deleted this record by now" if is_gone else ""
            at_ms = committed_ms(link, commit)
            yield Step(at_ms, "committed", commit.end.origin, detail, link.origin)

    def _delivered(self, link: Link, delivery: TracedRecord) -> Step:
        due_ms, commit = due_ms_of(link), commit_of(link)
        late_ms = None
        if due_ms is not None:
            from_ms = due_ms if commit is None else max(due_ms, committed_ms(link, commit))
            late_ms = delivery.timestamp_ms - from_ms
        is_given_up = delivery.place.topic.startswith(self._names.dlq_prefix)
        detail = "its consumer group has given it up" if is_given_up else ""
        time_ms, place = delivery.timestamp_ms, delivery.place
        return Step(time_ms, DELIVERED, place, detail, link.origin, late_ms=late_ms)

    def _waiting(self, link: Link) -> Step:
        assert link.asked is not None
        assert link.record is not None
        detail, due_ms = "", link.asked.due_ms
        if link.asked.kind == HALF_MESSAGE and not link.controls:
            detail, due_ms = "nobody has committed or rolled it back", None
        elif due_ms is None:
            detail = "the proxy has not read it yet"
        elif link.record.header(HOP_NOT_BEFORE) == PARKED:
            detail, due_ms = "its target was paused: it waits to be resumed", None
        else:
            due_ms = max(due_ms, link.record.number(HOP_NOT_BEFORE) or 0)
        return Step(self._now_ms, WAITING, link.origin, detail, link.origin, due_ms)


def _last_hop(link: Link, trace: Trace) -> Link:
    """The last record that this one was rewritten as with its due, as far as they are known."""
    by_origin = {one.origin: one for one in trace.links}
    while link.successor is not None and link.successor in by_origin:
        if link.end is not None and link.end.is_move:
            break
        link = by_origin[link.successor]
    return link


def _may_wait(link: Link) -> bool:
    return link.record is not None and link.unreadable is None


def _is_skipped(link: Link) -> bool:
    """Whether it lies in a batch that was skipped: no client can read it."""
    return link.end is not None and link.end.detail.startswith(RECORD_UNREADABLE)


def _gaps(link: Link) -> Iterator[str]:
    """What cannot be told of one record."""
    if link.record is None:
        why = (
            "its batch cannot be read" if _is_skipped(link) else "it has been deleted by retention"
        )
        yield f"When {link.origin} was written and what it asked for: {why}."
        if link.ended_ms is None:
            yield f"How {link.origin} ended: no outcome of it is there (any more)."
    if link.unreadable is not None and link.ended_ms is None:
        yield f"How {link.origin} ended: its outcome, {link.unreadable}, cannot be read."
    if link.end is not None and link.end.what == DEAD_LETTERED and link.letter is None:
        yield f"What the dead letter of {link.origin} holds: it is not there any more."


def _trace_id(link: Link) -> str | None:
    record = link.record or link.delivery
    parent = None if record is None else read_traceparent(record.header(TRACEPARENT))
    return None if parent is None else parent.trace_id


def _retry_name(record: TracedRecord) -> str:
    failures = record.number(ATTEMPT)
    return "retry" if failures is None else f"retry {failures}"


def _failure(record: TracedRecord, request: str) -> str:
    why, group = record.text(EXCEPTION), record.text(RETRY_GROUP)
    return f"the group {group} failed at it{f' ({why})' if why else ''}; {request}"


def _shown(ident: bytes) -> str:
    return ident.decode("utf-8", "backslashreplace")
