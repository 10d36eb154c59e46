"""Bulk moves: the pending records that a filter chooses get another delivery time.

A dry run lists the records and returns a token. The token holds the next offset of each ingress
partition at that time, and the place at which the list ended. So a call with the token moves
only records that the dry run has counted. A moved record gets a higher offset. So a repeated call
does not move it again.

Each instance gets the whole token, and moves records of the partitions that it serves. It returns
the token without the partitions that are finished. The next token has the partitions that all
instances have returned."""

import hashlib
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator

from proxy.admin import models
from proxy.admin.answers import Count, WithPartitions
from proxy.admin.calls import REFUSED, CallRoute, Site, SiteOf
from proxy.admin.listing import BEYOND_PARTITIONS, CURSOR, Place, cursor_of, place_of, read_page
from proxy.admin.peers import PREFIX
from proxy.admin.problem import Problem
from proxy.admin.queries import FindMoves, NextOffsets
from proxy.admin.records import deliver_at_ms, shown_pending
from proxy.admin.threads import room_in
from proxy.admin.tokens import needs
from proxy.admin.whole_group import OthersOf, Total
from proxy.clock import wall_clock_ms
from proxy.protocol.body import Message
from proxy.protocol.outcomes import REPLACED, REQUEUED
from proxy.protocol.position import NEVER_MS
from proxy.protocol.times import LATEST_MS, parse_delay_ms
from proxy.scheduling.batch import OutgoingRecord
from proxy.scheduling.pending import PendingRecord, Sought
from proxy.telemetry.status import covered_by
from storage.store import LAST_OFFSET

MOST_MOVED: Final = 10_000
"""A dry run counts at most this many records, so one token moves at most this many."""
MOVED_AT_ONCE: Final = 1_000
WITHIN_S: Final = 10.0
"""A call moves at most MOVED_AT_ONCE records of an instance, and begins no further piece after this
time."""
COUNTED_WITHIN_S: Final = 20.0
PEERS_WITHIN_S: Final = 25.0
PIECE: Final = 200
PIECE_BYTES: Final = 4 << 20
UNREAD_BYTES: Final = 65_536
"""Assumed size of a record whose body is only in Kafka."""
OUTCOMES_WITHIN_S: Final = 10.0
MOST_PARTITIONS: Final = 1_000
SAMPLE: Final = 10
NOW: Final = "now"
LAST_PLACE: Final[Place] = (NEVER_MS, BEYOND_PARTITIONS, LAST_OFFSET)
START: Final = "-"
PART: Final = (
    rf"[0-9]{{1,10}}:[0-9]{{1,18}}(?:,[0-9]{{1,10}}:[0-9]{{1,18}}){{0,{MOST_PARTITIONS}}};"
    rf"(?:-|{CURSOR.pattern});{CURSOR.pattern}"
)
TOKEN: Final = re.compile(
    rf"1;(?P<parts>{PART}(?:\|{PART}){{0,{MOST_PARTITIONS}}});(?P<digest>[0-9a-f]{{32}})"
)
UNKNOWN: Final = "unknown"
NULL: Final = {"type": "null"}
TEXT: Final = {"type": "string"}
ONE_TIME: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["deliver_at"], "properties": {"deliver_at": {"not": NULL}, "later": NULL}},
        {"required": ["later"], "properties": {"later": TEXT, "deliver_at": NULL}},
    ]
}
DRY_RUN_OR_TOKEN: Final[dict[str, Any]] = {
    "oneOf": [
        {"properties": {"dry_run": {"const": True}, "confirm": NULL}},
        {"required": ["confirm"], "properties": {"dry_run": {"const": False}, "confirm": TEXT}},
    ]
}
MOVED_TO: Final[dict[str, Any]] = {
    "oneOf": [
        NULL,
        {"const": NOW},
        {"type": "integer", "minimum": 0, "maximum": LATEST_MS},
        {"type": "string", "format": "date-time"},
    ]
}

router = APIRouter(route_class=CallRoute, tags=["records"], responses=REFUSED)


class MovesBody(models.Body):
    """The records to move, and their new time: `deliver_at` or `later`."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [ONE_TIME, DRY_RUN_OR_TOKEN],
            "examples": [{"targets": "orders-*", "deliver_at": NOW, "dry_run": True}],
        }
    )
    targets: models.Pattern = Field(description="A target, or a shell pattern of targets.")
    due_from: models.Moment = Field(
        None, description="Only records that fire at this time or later."
    )
    due_to: models.Moment = Field(
        None, description="Only records that fire at this time or earlier."
    )
    id_prefix: models.IdPrefix = Field(
        "", description="The beginning of the id. Records with `why: unread` never match."
    )
    partition: models.PartitionNumber | None = Field(
        None, description="Only records of this ingress partition."
    )
    deliver_at: Any = Field(
        None,
        description="`now`, epoch milliseconds, or RFC 3339 with a zone. At most `max_delay` from "
        "now. With a past time, records are delivered at once.",
        json_schema_extra=MOVED_TO,
    )
    later: Annotated[str, Field(pattern=models.OLDER_THAN)] | None = Field(
        None, description="Add this duration to the due of each record, for example `2h`."
    )
    dry_run: bool = Field(description="If true, the records are only counted.")
    confirm: Annotated[str, Field(max_length=48_000)] | None = Field(
        None, description="The `confirm` of the dry run, or of the previous call."
    )

    @model_validator(mode="after")
    def _one_time(self) -> "MovesBody":
        if (self.deliver_at is None) == (self.later is None):
            raise ValueError("give either deliver_at or later")
        if self.dry_run != (self.confirm is None):
            raise ValueError("give either `dry_run: true` or `confirm`")
        return self


class Moves(WithPartitions):
    """Moved records, or with `dry_run` the records that would be moved."""

    dry_run: bool
    records: Count = Field(
        description="Records that would be moved, at most 10,000, or records that this call moved."
    )
    cut: bool = Field(
        description="True if the dry run stopped at 10,000 records, or because time ran out. "
        "Records that were not counted are not moved."
    )
    first_due: int | None = Field(description="The earliest due of these records.")
    last_due: int | None = Field(description="The latest due of these records.")
    sample: list[models.PendingRecord] = Field(
        max_length=SAMPLE, description="In a dry run, the first records."
    )
    outcomes: dict[str, int] = Field(
        description="Outcomes of the moves. `missed`: the record had ended, or was rewritten. "
        "`unknown`: the move is written, and its outcome did not come within 10 s."
    )
    left_out: dict[str, int] = Field(
        description="Matching records without a move, by reason. `half-message`: it is undecided. "
        "`too-far`: the new time is beyond `max_delay`. `target-refused`: the settings refuse the "
        "target now. `ended`: it has just ended. `deleted`: the ingress has deleted it."
    )
    confirm: str | None = Field(
        description="Send it with the same fields and without `dry_run`. Null: nothing is left."
    )
    cursors: list[str] = Field(
        [], description="The cursor of each record. Only in the dry run of a single instance."
    )
    dues: list[int] = Field(
        [], description="The due of each record. Only in the dry run of a single instance."
    )


class Part(NamedTuple):
    """The part of a move that is not yet done in one partition."""

    below: int
    """Only records below this offset are moved."""
    after: Place
    last: Place


Left = Mapping[int, Part]


class Plan(NamedTuple):
    """Partitions whose lists have the same bounds."""

    upto: Mapping[int, int]
    """Partition -> offset. Only records below the offset are moved."""
    after: Place
    """The list continues after this place."""
    last: Place


@router.post("/moves")
@needs("operator")
def move_records(site: SiteOf, others: OthersOf, body: MovesBody) -> Moves:
    """Give another delivery time to all pending records that a filter chooses.

    First call with `dry_run`. The reply has the number of records and a token in `confirm`. Then
    send the same fields with this token. A call moves at most 1,000 records of each instance, and
    its reply has the token for the next call. Go on until `confirm` is null. Only records that the
    dry run has counted are moved. Each is moved at most once, so any call may be repeated. Records
    that were delivered, cancelled or rewritten in the meantime are left out. If an instance does
    not answer the dry run, its records are not in the token. If it does not answer later, its
    records stay in the token, and `complete` is false. Each record is moved as by PATCH /records.
    """
    with room_in(site.free_moves, "Another bulk move is running. Try again later."):
        done = _count(site, body) if body.dry_run else _move(site, body)
    if others.is_alone:
        return done
    wanted = {*_left_of(body, body.confirm)}
    if body.dry_run or not wanted <= {*done.partitions}:
        total = Total(Moves, partial(_add, body), within_s=PEERS_WITHIN_S)
        asked = body.model_dump(exclude_none=True)
        done = total.with_others(others, done, f"{PREFIX}/moves", asked)
    return _counted(body, done) if body.dry_run else _moved(done, wanted)


def _add(body: MovesBody, one: Moves, other: Moves) -> Moves:
    """Add the answer `other` to `one`. Raises ValueError if the token or a cursor of `other` is
    wrong."""
    try:
        here, there = _left_of(body, one.confirm), _left_of(body, other.confirm)
        _by_place(body, other)
    except Problem as problem:
        raise ValueError(f"Its answer does not fit: {problem}") from None
    left = {**there, **here}
    if not body.dry_run:
        left = {
            number: here[number]._replace(after=max(here[number].after, there[number].after))
            for number in here.keys() & there.keys()
        }
    one.confirm = _token(body, left)
    one.records += other.records
    one.cut = one.cut or other.cut
    dues = [due for due in (one.first_due, other.first_due) if due is not None]
    one.first_due = min(dues, default=None)
    dues = [due for due in (one.last_due, other.last_due) if due is not None]
    one.last_due = max(dues, default=None)
    one.sample = sorted(one.sample + other.sample, key=lambda each: each.fires or 0)[:SAMPLE]
    one.outcomes = dict(Counter(one.outcomes) + Counter(other.outcomes))
    one.left_out = dict(Counter(one.left_out) + Counter(other.left_out))
    one.partitions += other.partitions
    one.cursors += other.cursors
    one.dues += other.dues
    return one


def _by_place(body: MovesBody, done: Moves) -> dict[Place, int]:
    """Return the due of each counted record. Raises ValueError."""
    sought = _sought(body)
    places = [place_of(cursor, sought) for cursor in done.cursors]
    return dict(zip(places, done.dues, strict=True))


def _counted(body: MovesBody, done: Moves) -> Moves:
    """Return the summed dry runs, cut to MOST_MOVED records. Raises Problem."""
    if body.partition not in {None, *done.partitions} and not done.unanswered:
        detail = "No instance serves such a partition now. It may move or recover."
        raise Problem(404, "not-served-here", detail)
    found = sorted(_by_place(body, done).items())
    kept, left = found[:MOST_MOVED], _left_of(body, done.confirm)
    if len(found) > len(kept):
        done.cut, last = True, kept[-1][0]
        numbers = {place[1] for place, _ in kept}
        left = {
            number: part._replace(last=min(part.last, last))
            for number, part in left.items()
            if number in numbers
        }
    dues = [due for _, due in kept]
    done.records, done.confirm = len(kept), _token(body, left)
    done.first_due, done.last_due = min(dues, default=None), max(dues, default=None)
    done.model_fields_set.difference_update({"cursors", "dues"})
    return done


def _moved(done: Moves, wanted: set[int]) -> Moves:
    """Return the summed moves. They are complete if instances served all partitions of the token.
    Raises Problem."""
    missing = sorted(wanted - {*done.partitions})
    if missing and not done.unanswered and not done.outcomes:
        detail = f"The partitions {missing} move to another instance or recover. Repeat the call."
        raise Problem(409, "moved-away", detail)
    done.complete, done.unanswered = not missing, done.unanswered
    return done


def _sought(body: MovesBody) -> Sought:
    return Sought(
        body.targets,
        0 if body.due_from is None else body.due_from,
        NEVER_MS - 1 if body.due_to is None else body.due_to,
        body.id_prefix.encode(),
    )


class _Times:
    """The new times of records."""

    def __init__(self, site: Site, body: MovesBody) -> None:
        now_ms = wall_clock_ms()
        self.latest_ms = now_ms + site.broker.max_delay_ms
        self.later_ms = None if body.later is None else parse_delay_ms(body.later)
        self.at_ms = now_ms
        if body.deliver_at not in (None, NOW):
            self.at_ms = deliver_at_ms(site, body.deliver_at)

    def why_not(self, record: PendingRecord) -> str | None:
        """Return the reason why a record gets no new time, or None. If the record's body is only in
        Kafka, its due is unknown. Then its firing time is used instead."""
        if record.why == "undecided":
            return "half-message"
        at_ms = self.at_ms if self.later_ms is None else record.due_ms + self.later_ms
        return "too-far" if at_ms > self.latest_ms else None


def _placed(site: Site, record: PendingRecord) -> Place:
    topic, partition, _offset = record.origin.rsplit("/", 2)
    assert topic == site.settings.topics.ingress, record
    return record.fires_ms, int(partition), record.offset


def _pages(
    site: Site, body: MovesBody, plan: Plan, limit: int, until_s: float
) -> Iterator[tuple[list[PendingRecord], Place | None]]:
    """Yield records of the plan in order, and the place after them. The place is None at the
    end. Raises Problem."""
    sought, place = _sought(body), plan.after
    while True:
        page = read_page(site.workers.ask, sought, plan.upto, place, limit)
        if {*page.partitions} != {*plan.upto}:
            raise _just_moved()
        at = [(_placed(site, record), record) for record in page.records]
        found = [record for one, record in at if one <= plan.last and one[2] < plan.upto[one[1]]]
        is_end = page.next is None or page.next >= plan.last
        yield found, None if is_end else page.next
        if is_end or page.next is None or time.monotonic() > until_s:
            return
        place = page.next


def _just_moved() -> Problem:
    detail = "A partition has just moved to another process. Repeat the call."
    return Problem(409, "moved-away", detail)


def _served(site: Site) -> dict[int, int]:
    """Return the next offset of each partition whose pending records this process knows. Raises
    Problem."""
    statuses = site.read_statuses()
    if any(status.is_ingest_paused for status in statuses):
        detail = "The ingest is paused, so no move would be read. Resume it first."
        raise Problem(409, "ingest-paused", detail)
    known = dict(site.workers.ask(NextOffsets()))
    return {number: known[number] for number in covered_by(statuses) if number in known}


def _count(site: Site, body: MovesBody) -> Moves:
    served, times = _served(site), _Times(site, body)
    listed = {one: upto for one, upto in served.items() if body.partition in (None, one)}
    plan = Plan(listed, place_of(None, _sought(body)), LAST_PLACE)
    until_s = time.monotonic() + COUNTED_WITHIN_S
    left_out, found, place = Counter[str](), list[PendingRecord](), plan.after
    for records, following in _pages(site, body, plan, MOVED_AT_ONCE, until_s):
        reasons = [times.why_not(record) for record in records]
        left_out.update(why for why in reasons if why is not None)
        found += [one for one, why in zip(records, reasons, strict=True) if why is None]
        place = following or LAST_PLACE
        if following is None or len(found) > MOST_MOVED:
            break
    is_cut = place != LAST_PLACE or len(found) > MOST_MOVED
    found = found[:MOST_MOVED]
    if is_cut:
        place = _placed(site, found[-1]) if len(found) == MOST_MOVED else place
    places = [_placed(site, one) for one in found]
    left = {number: Part(served[number], plan.after, place) for _, number, _ in places}
    now_ms = wall_clock_ms()
    return Moves(
        dry_run=True,
        records=len(found),
        cut=is_cut,
        first_due=min((one.due_ms for one in found), default=None),
        last_due=max((one.due_ms for one in found), default=None),
        sample=[shown_pending(one, (), {}, now_ms) for one in found[:SAMPLE]],
        outcomes={},
        left_out=dict(left_out),
        partitions=sorted(served),
        confirm=_token(body, left),
        cursors=[cursor_of(one) for one in places],
        dues=[one.due_ms for one in found],
    )


class _Run:
    """One call: it moves records and counts them."""

    def __init__(self, site: Site, times: _Times) -> None:
        self._site, self._times = site, times
        self.outcomes, self.left_out = Counter[str](), Counter[str]()
        self.dues: list[int] = []
        self._until_s = time.monotonic() + WITHIN_S

    def is_over(self) -> bool:
        return self.outcomes.total() >= MOVED_AT_ONCE or time.monotonic() > self._until_s

    def pages(
        self, body: MovesBody, plan: Plan
    ) -> Iterator[tuple[list[PendingRecord], Place | None]]:
        return _pages(self._site, body, plan, PIECE, self._until_s)

    def move(self, records: Sequence[PendingRecord]) -> None:
        for piece in _pieces(records):
            moves = list[OutgoingRecord]()
            for record, made in _made(self._site, piece, self._times):
                if isinstance(made, str):
                    self.left_out[made] += 1
                else:
                    moves.append(made)
                    self.dues.append(record.due_ms)
            done = self._site.broker.move_all(moves, OUTCOMES_WITHIN_S) if moves else []
            self.outcomes.update(one.outcome or UNKNOWN for one in done)


def _move(site: Site, body: MovesBody) -> Moves:
    left, run, served = _left_of(body, body.confirm), _Run(site, _Times(site, body)), _served(site)
    here = [n for n, upto in served.items() if n not in left or left[n].below <= upto]
    for plan in _plans({number: left[number] for number in here if number in left}):
        if run.is_over():
            break
        for records, place in run.pages(body, plan):
            run.move(records)
            if place is None:
                left = {number: left[number] for number in left.keys() - plan.upto.keys()}
            else:
                left |= {number: left[number]._replace(after=place) for number in plan.upto}
            if run.is_over():
                break
    return Moves(
        dry_run=False,
        records=run.outcomes[REPLACED] + run.outcomes[REQUEUED],
        cut=False,
        first_due=min(run.dues, default=None),
        last_due=max(run.dues, default=None),
        sample=[],
        outcomes=dict(run.outcomes),
        left_out=dict(run.left_out),
        partitions=sorted(here),
        confirm=_token(body, left),
    )


def _pieces(records: Sequence[PendingRecord]) -> Iterator[list[PendingRecord]]:
    """Yield lists of records whose values fit into memory together."""
    piece, size_bytes = list[PendingRecord](), 0
    for record in records:
        record_bytes = UNREAD_BYTES if record.size_bytes is None else record.size_bytes
        if piece and size_bytes + record_bytes > PIECE_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(record)
        size_bytes += record_bytes
    if piece:
        yield piece


def _made(
    site: Site, piece: Sequence[PendingRecord], times: _Times
) -> Iterator[tuple[PendingRecord, OutgoingRecord | str]]:
    """Yield each record with its move, or with the reason why it has no move."""
    wanted = defaultdict[int, dict[int, PendingRecord]](dict)
    for record in piece:
        if (why := times.why_not(record)) is not None:
            yield record, why
        else:
            offset = int(record.origin.rpartition("/")[2])
            wanted[_placed(site, record)[1]][offset] = record
    found = site.broker.read_all({number: sorted(wanted[number]) for number in wanted})
    for partition, records in wanted.items():
        for offset, record in records.items():
            if offset not in found[partition]:
                yield record, "deleted"
        for offset, made in _moves_of(site, partition, [*found[partition].values()], times):
            yield records[offset], made


def _moves_of(
    site: Site, partition: int, left: list[Message], times: _Times
) -> Iterator[tuple[int, OutgoingRecord | str]]:
    while left:
        answers = site.workers.ask(FindMoves(partition, tuple(left), times.at_ms, times.later_ms))
        if not answers:
            raise _just_moved()
        for message, (at_ms, moving) in zip(left, answers, strict=False):
            state = moving.state if moving.at == message.offset() else "ended"
            is_too_far = at_ms > times.latest_ms
            yield message.offset(), "too-far" if is_too_far else moving.record or state
        left = left[len(answers) :]


def _digest(body: MovesBody, parts: str) -> str:
    """Return a digest of the filter, the new time and the parts. It shows whether a token belongs
    to a call. The token is not secret, because the caller's role decides what a call may do."""
    fields = body.model_dump(exclude={"dry_run", "confirm"})
    said = json.dumps([fields, parts], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _plans(left: Left) -> list[Plan]:
    plans = defaultdict[tuple[Place, Place], dict[int, int]](dict)
    for number, part in sorted(left.items()):
        plans[part.after, part.last][number] = part.below
    return [Plan(upto, *bounds) for bounds, upto in plans.items()]


def _token(body: MovesBody, left: Left) -> str | None:
    """Return the token for these partitions. If there are none, return None. Raises Problem."""
    if not left:
        return None
    if len(left) > MOST_PARTITIONS:
        detail = f"The records lie in more than {MOST_PARTITIONS} partitions. Narrow the filter."
        raise Problem(409, "too-wide", detail)
    parts, begin = list[str](), place_of(None, _sought(body))
    for plan in _plans(left):
        upto = ",".join(f"{number}:{offset}" for number, offset in plan.upto.items())
        after = START if plan.after == begin else cursor_of(plan.after)
        parts.append(f"{upto};{after};{cursor_of(plan.last)}")
    said = "|".join(parts)
    return f"1;{said};{_digest(body, said)}"


def _left_of(body: MovesBody, confirm: str | None) -> dict[int, Part]:
    """Return the parts that a token holds, by partition. Raises Problem."""
    if confirm is None:
        return {}
    found = TOKEN.fullmatch(confirm)
    if found is None or found["digest"] != _digest(body, found["parts"]):
        detail = "`confirm` belongs to no dry run with these fields. Repeat the dry run with them."
        raise Problem(409, "other-dry-run", detail)
    left, sought = dict[int, Part](), _sought(body)
    for said in found["parts"].split("|"):
        upto, after, last = said.split(";")
        begin = place_of(None if after == START else after, sought)
        for number, below in (map(int, one.split(":")) for one in upto.split(",")):
            left[number] = Part(below, begin, place_of(last, sought))
    return left
