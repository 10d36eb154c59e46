"""Bulk moves: the pending records that a filter chooses get another delivery time.

A dry run lists the records and returns a token. The token holds the next offset of each ingress
partition at that time, and the place at which the list ended. So a call with the token moves
only records that the dry run has counted. A moved record gets a higher offset. So a repeated call
does not move it again."""

import hashlib
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter
from pydantic import Field, model_validator

from proxy.admin import models
from proxy.admin.answers import Answer, Count, Partitions
from proxy.admin.calls import REFUSED, CallRoute, Site, SiteOf
from proxy.admin.listing import BEYOND_PARTITIONS, CURSOR, Place, cursor_of, place_of, read_page
from proxy.admin.problem import Problem, bad_request
from proxy.admin.queries import FindMoves, NextOffsets
from proxy.admin.records import deliver_at_ms, shown_pending
from proxy.admin.threads import room_in
from proxy.admin.tokens import needs
from proxy.clock import wall_clock_ms
from proxy.protocol.body import Message
from proxy.protocol.outcomes import REPLACED, REQUEUED
from proxy.protocol.position import NEVER_MS
from proxy.protocol.times import LATEST_MS, parse_delay_ms
from proxy.scheduling.batch import OutgoingRecord
from proxy.scheduling.pending import PendingRecord, Sought
from storage.store import LAST_OFFSET

MOST_MOVED: Final = 10_000
"""A dry run counts at most this many records, so one token moves at most this many."""
MOVED_AT_ONCE: Final = 1_000
WITHIN_S: Final = 10.0
"""A call moves at most MOVED_AT_ONCE records and begins no further piece after this time."""
COUNTED_WITHIN_S: Final = 20.0
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
TOKEN: Final = re.compile(
    rf"1;(?P<upto>[0-9]{{1,10}}:[0-9]{{1,18}}(,[0-9]{{1,10}}:[0-9]{{1,18}}){{0,{MOST_PARTITIONS}}});"
    rf"(?P<after>-|{CURSOR.pattern});(?P<last>{CURSOR.pattern});(?P<digest>[0-9a-f]{{32}})"
)
UNKNOWN: Final = "unknown"
MOVED_TO: Final[dict[str, Any]] = {
    "oneOf": [
        {"const": NOW},
        {"type": "integer", "minimum": 0, "maximum": LATEST_MS},
        {"type": "string", "format": "date-time"},
    ]
}

router = APIRouter(route_class=CallRoute, tags=["records"], responses=REFUSED)


class MovesBody(models.Body):
    """The records to move, and their new time: `deliver_at` or `later`."""

    model_config = models.example({"targets": "orders-*", "deliver_at": NOW, "dry_run": True})
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
        "now. A past time means at once.",
        json_schema_extra=MOVED_TO,
    )
    later: Annotated[str, Field(pattern=models.OLDER_THAN)] | None = Field(
        None, description="Add this duration to the due of each record, for example `2h`."
    )
    dry_run: bool = Field(description="If true, the records are only counted.")
    confirm: Annotated[str, Field(max_length=48_000)] | None = Field(
        None, description="The `confirm` of the dry run, or of the call before."
    )

    @model_validator(mode="after")
    def _one_time(self) -> "MovesBody":
        if (self.deliver_at is None) == (self.later is None):
            raise ValueError("give either deliver_at or later")
        if self.dry_run != (self.confirm is None):
            raise ValueError("give either `dry_run: true` or `confirm`")
        return self


class Moves(Answer):
    """Moved records, or with `dry_run` the records that would be moved."""

    dry_run: bool
    records: Count = Field(
        description="Records that would be moved, at most 10,000, or records that this call moved."
    )
    cut: bool = Field(
        description="True if the dry run did not count all matching records, because they are more "
        "than 10,000 or time ran out. The others are not moved."
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
    partitions: Partitions
    confirm: str | None = Field(
        description="Send it with the same fields and without `dry_run`. Null: nothing is left."
    )


class Plan(NamedTuple):
    """The part of a move that its token holds."""

    upto: Mapping[int, int]
    """Partition -> the offset below which its records count."""
    after: Place
    """The list continues after this place."""
    last: Place


@router.post("/moves")
@needs("operator")
def move_records(site: SiteOf, body: MovesBody) -> Moves:
    """Give another delivery time to all pending records that a filter chooses.

    First call with `dry_run`. The reply has the number of records and a token in `confirm`. Then
    send the same fields with this token. A call moves at most 1,000 records, and its reply has the
    token for the next call. Go on until `confirm` is null. Only records that the dry run has
    counted are moved, and each at most once, so any call may be repeated. Records that were
    delivered, cancelled or rewritten in the meantime are passed over. The call moves records of
    the called process only. With several instances call each. Records are moved as by PATCH
    /records.
    """
    with room_in(site.free_moves, "Another bulk move is running. Try again later."):
        return _count(site, body) if body.dry_run else _move(site, body)


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
        """Return the reason why a record has no new time. If its body is only in Kafka, its firing
        time counts as its due here."""
        if record.why == "undecided":
            return "half-message"
        at_ms = self.at_ms if self.later_ms is None else record.due_ms + self.later_ms
        return "too-far" if at_ms > self.latest_ms else None


def _placed(site: Site, record: PendingRecord) -> Place:
    topic, partition, _offset = record.origin.rsplit("/", 2)
    assert topic == site.settings.topics.ingress, record
    return record.fires_ms, int(partition), record.offset


def _pages(
    site: Site, body: MovesBody, plan: Plan, limit: int, within_s: float
) -> Iterator[tuple[list[PendingRecord], Place | None]]:
    """Yield records of the plan in order, and the place after them. The place is None at the
    end."""
    until_s, sought, place = time.monotonic() + within_s, _sought(body), plan.after
    while True:
        page = read_page(site.workers.ask, sought, plan.upto, place, limit)
        at = [(_placed(site, record), record) for record in page.records]
        found = [record for one, record in at if one <= plan.last and one[2] < plan.upto[one[1]]]
        is_end = page.next is None or page.next >= plan.last
        yield found, None if is_end else page.next
        if is_end or page.next is None or time.monotonic() > until_s:
            return
        place = page.next


def _served(site: Site, partition: int | None) -> dict[int, int]:
    """Return the next offset of each partition that this process serves. Raises Problem."""
    if any(status.is_ingest_paused for status in site.read_statuses()):
        detail = "The ingest is paused, so no move would be read. Resume it first."
        raise Problem(409, "ingest-paused", detail)
    known = dict(site.workers.ask(NextOffsets()))
    served = {number: known[number] for number in known if partition in (None, number)}
    if not served:
        detail = "This process serves no such partition. Another instance may have it."
        raise Problem(404, "not-served-here", detail)
    return served


def _count(site: Site, body: MovesBody) -> Moves:
    served, times = _served(site, body.partition), _Times(site, body)
    plan = Plan(served, place_of(None, _sought(body)), LAST_PLACE)
    left_out, found, place = Counter[str](), list[PendingRecord](), plan.after
    for records, following in _pages(site, body, plan, MOVED_AT_ONCE, COUNTED_WITHIN_S):
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
    upto = {number: served[number] for number in {_placed(site, one)[1] for one in found}}
    if len(upto) > MOST_PARTITIONS:
        detail = f"The records lie in more than {MOST_PARTITIONS} partitions. Narrow the filter."
        raise Problem(409, "too-wide", detail)
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
        confirm=_token(body, Plan(upto, plan.after, place)) if found else None,
    )


def _move(site: Site, body: MovesBody) -> Moves:
    plan, times = _plan_of(body), _Times(site, body)
    served = _served(site, body.partition)
    if missing := sorted(set(plan.upto) - set(served)):
        detail = f"The partitions {missing} have moved to another process. Repeat the dry run."
        raise Problem(409, "moved-away", detail)
    outcomes, left_out, dues, place = Counter[str](), Counter[str](), list[int](), None
    for records, place in _pages(site, body, plan, PIECE, WITHIN_S):
        moves = list[OutgoingRecord]()
        for piece in _pieces(records):
            moves = []
            for record, made in _made(site, piece, times):
                if isinstance(made, str):
                    left_out[made] += 1
                else:
                    moves.append(made)
                    dues.append(record.due_ms)
            done = site.broker.move_all(moves, OUTCOMES_WITHIN_S) if moves else []
            outcomes.update(one.outcome or UNKNOWN for one in done)
        if place is None or outcomes.total() >= MOVED_AT_ONCE:
            break
    rest = None if place is None else _token(body, plan._replace(after=place))
    return Moves(
        dry_run=False,
        records=outcomes[REPLACED] + outcomes[REQUEUED],
        cut=False,
        first_due=min(dues, default=None),
        last_due=max(dues, default=None),
        sample=[],
        outcomes=dict(outcomes),
        left_out=dict(left_out),
        partitions=sorted(served),
        confirm=rest,
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
    """Yield each record with its move, or with the reason for having none."""
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
            detail = "A partition has just moved to another process. Repeat the dry run."
            raise Problem(409, "moved-away", detail)
        for message, (at_ms, moving) in zip(left, answers, strict=False):
            state = moving.state if moving.at == message.offset() else "ended"
            is_too_far = at_ms > times.latest_ms
            yield message.offset(), "too-far" if is_too_far else moving.record or state
        left = left[len(answers) :]


def _digest(body: MovesBody, upto: str, last: str) -> str:
    """Return a digest of the filter, the new time and the bounds, so that a token fits no other
    call. The token is no secret: the caller's role decides what a call may do."""
    fields = body.model_dump(exclude={"dry_run", "confirm"})
    said = json.dumps([fields, upto, last], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _token(body: MovesBody, plan: Plan) -> str:
    upto = ",".join(f"{number}:{offset}" for number, offset in sorted(plan.upto.items()))
    last = cursor_of(plan.last)
    after = START if plan.after == place_of(None, _sought(body)) else cursor_of(plan.after)
    return f"1;{upto};{after};{last};{_digest(body, upto, last)}"


def _plan_of(body: MovesBody) -> Plan:
    found = TOKEN.fullmatch(body.confirm or "")
    if found is None:
        raise bad_request("confirm: it is no token of a dry run.")
    if found["digest"] != _digest(body, found["upto"], found["last"]):
        detail = (
            "`confirm` belongs to another filter or time. Repeat the dry run with these fields."
        )
        raise Problem(409, "other-dry-run", detail)
    pairs = (one.split(":") for one in found["upto"].split(","))
    upto = {int(number): int(offset) for number, offset in pairs}
    after, sought = found["after"], _sought(body)
    begins = place_of(None if after == START else after, sought)
    return Plan(upto, begins, place_of(found["last"], sought))
