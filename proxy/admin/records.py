"""The calls for records: counts, lists, cancels, recalls, moves, traces."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, WithJsonSchema

from proxy.admin import models
from proxy.admin.calls import (
    NO_CURSOR,
    REFUSED,
    CallerOf,
    CallRoute,
    Instant,
    Limit,
    PatternQuery,
    Place,
    Site,
    SiteOf,
    Wait,
    fitting,
)
from proxy.admin.listing import (
    COUNTED_WITHIN_S,
    CURSOR,
    DEFAULT_LIMIT,
    add_pages,
    cursor_after,
    cursor_of,
    cut_page,
    dues_by_time,
    partition_in,
    pending_by_time,
    place_of,
    read_page,
)
from proxy.admin.peers import ANSWER_WITHIN_S, PREFIX
from proxy.admin.problem import Problem
from proxy.admin.queries import FindId, FindMove, FindRecord
from proxy.admin.record_content import content_of
from proxy.admin.threads import room_in
from proxy.admin.tokens import needs
from proxy.admin.whole_group import Others, OthersOf, Owner, Total, of_group
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letter import Origin
from proxy.dispatch.hops import NOT_COMMITTED, Moving
from proxy.kafka.control import ControlResult
from proxy.protocol.outcomes import MISSED
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic
from proxy.protocol.position import NEVER_MS
from proxy.protocol.times import LATEST_MS, parse_delay_ms, parse_instant_ms
from proxy.scheduling.pending import Found, PendingRecord, Sought
from proxy.telemetry.status import covered_by, partitions_of
from storage.store import added

STATUS_OLD_S: Final = 1.0
LOOK_EVERY_S: Final = 0.05
COMMITTED_WITHIN_S: Final = 3.0
MOST_STEPS: Final = 5
"""Highest number of steps of a move. In a step, the call goes on to the record's successor, or it
writes a move."""
SPAN: Final = re.compile(r"[0-9]{1,6}(ms|s|m|h|d)")
SPANS: Final = re.compile(f"{SPAN.pattern}(,{SPAN.pattern}){{0,49}}")
TARGETS_SHOWN: Final = 1_000
WHY_NOT: Final = {
    "not-committed": "The record was read, but its offset is not committed yet. Try again.",
    "target-refused": "The settings now refuse the record's target (targets.allow, targets.deny). "
    "The record stays pending, because a move would make it a dead letter. Allow the target first.",
    "half-message": "The record is an undecided half message, so it has no delivery time yet. "
    "Commit it first.",
    "ended": "The record has ended. Its trace, its target or the outcomes topic shows how.",
}

MOVED_AWAY: Final = "The partition has just moved to another worker. Try again."

router = APIRouter(route_class=CallRoute, tags=["records"], responses=REFUSED)


def _add_pending(one: models.Pending, other: models.Pending) -> models.Pending:
    counts = Counter(one.by_target)
    counts.update(other.by_target)
    shown = dict(counts.most_common(TARGETS_SHOWN))
    return models.Pending(
        pending=one.pending + other.pending,
        by_target=shown,
        others=one.others + other.others + counts.total() - sum(shown.values()),
        partitions=one.partitions + other.partitions,
    )


@router.get("/pending")
@needs("viewer")
@of_group(Total(models.Pending, _add_pending))
def get_pending(site: SiteOf) -> models.Pending:
    """Count the pending records of each target.

    The counts are exact. They are at most a second old, or older with tens of thousands of
    targets. Undecided half messages are not counted.
    """
    statuses = site.read_statuses()
    counts = added([status.pending_by_target for status in statuses])
    shown, others = counts.largest(TARGETS_SHOWN)
    return models.Pending(
        pending=counts.total, by_target=shown, others=others, partitions=covered_by(statuses)
    )


def _add_by_time(one: models.PendingByTime, other: models.PendingByTime) -> models.PendingByTime:
    """Add the counts of two instances. Raises ValueError if their buckets differ."""
    if [bucket.within for bucket in one.buckets] != [bucket.within for bucket in other.buckets]:
        raise ValueError("Its answer has other buckets.")
    for bucket, more in zip(one.buckets, other.buckets, strict=True):
        bucket.pending += more.pending
    one.cancelled += other.cancelled
    one.paused += other.paused
    one.partitions += other.partitions
    if not other.counted_all:
        one.counted_all = False
    return one


@router.get("/pending/by-time")
@needs("viewer")
@of_group(Total(models.PendingByTime, _add_by_time, within_s=COUNTED_WITHIN_S + ANSWER_WITHIN_S))
def get_pending_by_time(
    site: SiteOf,
    within: Annotated[
        str,
        fitting(SPANS, "write up to 50 durations, for example 30s,5m,2h,7d"),
        Query(
            description="Durations from now, separated by commas. At most 50.",
            json_schema_extra={"pattern": f"^{SPANS.pattern}$", "maxLength": 450},
            examples=["0s,1m,1h"],
        ),
    ] = "0s,1m,10m,1h,6h,1d,7d",
    target: Annotated[
        PatternQuery,
        Query(description="Count only this target, or the targets that match this pattern."),
    ] = None,
) -> models.PendingByTime:
    """Estimate how many records fire by given times.

    A record is counted at its time `fires`, not at its `due`. Counts of records in memory are
    exact. On disk, the default store has one count for each slot of its wheel. If a slot also has
    records of later turns of the wheel, all are counted at the earliest time. The store `rocksdb`
    has one count for records that were written together. It assumes that they are spread evenly
    from the first time to the last. After a restart it assumes this for each file. Cancelled and
    replaced records are counted until the time at which they would fire. With `target`, the counts
    are by `due`. Records are then counted one by one, for at most twenty seconds.
    """
    spans = {name: parse_delay_ms(name) for name in within.split(",")}
    now_ms, statuses = wall_clock_ms(), site.read_statuses()
    edges_ms = sorted(now_ms + span_ms for span_ms in spans.values())
    if target is None:
        counted = pending_by_time(site.workers, statuses, edges_ms)
    else:
        counted = dues_by_time(site.workers, statuses, target, edges_ms)
    names, ends = [*sorted(spans, key=lambda name: spans[name]), None], [*edges_ms, None]
    buckets = [
        models.Bucket(within=name, until=end, pending=count)
        for name, end, count in zip(names, ends, counted.counts, strict=True)
    ]
    return models.PendingByTime(
        now=now_ms,
        buckets=buckets,
        cancelled=counted.cancelled,
        paused=counted.paused,
        partitions=covered_by(statuses),
        **({} if target is None else {"counted_all": counted.is_all}),
    )


@router.get("/pending/records")
@needs("viewer")
@of_group(Total(models.RecordPage, add_pages, cut_page))
def list_pending_records(
    site: SiteOf,
    target: Annotated[
        PatternQuery, Query(description="A target, or a shell pattern of targets.")
    ] = None,
    due_from: Annotated[
        Instant,
        Query(
            description="Epoch milliseconds or RFC 3339. Only records that fire at this time or "
            "later, and half messages that are due at this time or later."
        ),
    ] = None,
    due_to: Annotated[
        Instant, Query(description="Like `due_from`, but at this time or earlier.")
    ] = None,
    id_prefix: Annotated[
        models.IdPrefix,
        Query(description="The beginning of the id. Records with `why: unread` never match."),
    ] = "",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Annotated[
        str | None,
        fitting(CURSOR, NO_CURSOR),
        WithJsonSchema({"type": "string", "pattern": f"^{CURSOR.pattern}$"}),
        Query(description="The `cursor` of the previous page. It stays valid after a rebalance."),
    ] = None,
) -> models.RecordPage:
    """List pending records, page by page.

    Records are ordered by `fires`, then partition, then offset. Undecided half messages come last.
    Cancelled and replaced records are left out. A page takes at most 2 s. It may be short or empty
    and still have a cursor. Then there is more to read. A record that is pending during the whole
    listing is on one of the pages. A record that is rewritten meanwhile has a new origin, and may
    appear twice or not at all. Delivery comes first. A busy worker lists for about a millisecond,
    and then rests 40 times as long, at most 0.1 s. If very many records are due in the same second,
    the default store lists for longer at a time.
    """
    sought = Sought(
        target or "",
        0 if due_from is None else due_from,
        NEVER_MS - 1 if due_to is None else due_to,
        id_prefix.encode(),
    )
    statuses = site.read_statuses()
    place = place_of(cursor, sought)
    page = read_page(site.workers.ask, sought, partitions_of(statuses), place, limit)
    paused = {pattern for status in statuses for pattern in status.paused}
    reasons = {
        one.target: f"{one.reason}: {one.detail}" for status in statuses for one in status.refused
    }
    now_ms = wall_clock_ms()
    return models.RecordPage(
        records=[shown_pending(record, paused, reasons, now_ms) for record in page.records],
        cursor=None if page.next is None else cursor_of(page.next),
        cursors=[cursor_after(record) for record in page.records],
        partitions=page.partitions,
    )


def _add_half_messages(one: models.HalfMessages, other: models.HalfMessages) -> models.HalfMessages:
    one.undecided += other.undecided
    one.by_partition |= other.by_partition
    return one


@router.get("/half-messages")
@needs("viewer")
@of_group(Total(models.HalfMessages, _add_half_messages))
def get_half_messages(site: SiteOf) -> models.HalfMessages:
    """Count undecided half messages."""
    shards = [shard for status in site.read_statuses() for shard in status.shards]
    by_partition = {str(shard.partition): shard.undecided for shard in shards}
    return models.HalfMessages(undecided=sum(by_partition.values()), by_partition=by_partition)


def _add_records(one: models.Records, other: models.Records) -> models.Records:
    one.records += other.records
    one.partitions += other.partitions
    return one


def _refuse_none(found: models.Records, _query: Mapping[str, str]) -> models.Records:
    if found.records:
        return found
    if found.unanswered:
        who = " ".join(f"{one.instance}: {one.reason}" for one in found.unanswered)
        detail = f"No instance that answered has this id. Other instances did not answer. {who}"
        raise Problem(503, "unanswered", detail)
    more = "" if found.complete else " Some partitions recover or move. Try again."
    raise Problem(404, "not-found", f"No record with this id is pending.{more}")


@router.get("/records")
@needs("viewer")
@of_group(Total(models.Records, _add_records, _refuse_none))
def find_records(
    site: SiteOf,
    id: Annotated[  # noqa: A002 (the name in the query)
        models.Ident,
        Query(description="A `timer-id` of 1 to 256 bytes.", examples=["order-17"]),
    ],
) -> models.Records:
    """Find pending records by id.

    The answer has one record for each partition that uses the id. A record that the proxy is
    rewriting is not found for some milliseconds.
    """
    found = site.workers.ask(FindId(id.encode()))
    return models.Records(
        records=[models.Record.model_validate(_shown(one)) for one in found],
        partitions=covered_by(site.read_statuses()),
    )


@router.get("/records/{topic}/{partition}/{offset}")
@needs("viewer")
@of_group(Owner(models.Record))
def get_record(
    site: SiteOf,
    caller: CallerOf,
    place: Place,
    body: Annotated[
        bool,
        BeforeValidator({"true": True, "false": False}.get),
        Query(description="If true, the answer has key, value and headers."),
    ] = False,
) -> models.Record:
    """Show the state of an ingress record, by its origin.

    This works while the ingress keeps the record. The answer does not tell how a record ended. Ask
    for its trace, or look for its origin in the target and the outcomes topic.
    """
    if body:
        caller.refuse_contents()
    _refuse_unread(site, place)
    record = site.broker.read(place.partition, place.offset)
    if record is None:
        detail = "The ingress has no record at this origin. Its trace may show how it ended."
        raise Problem(404, "not-found", detail)
    found = site.workers.ask(FindRecord(record))
    if not found:
        raise Problem(404, "not-served-here", MOVED_AWAY)
    content = content_of(record.key(), record.value(), record.headers() or []) if body else {}
    return models.Record.model_validate({**_shown(found[0]), **content})


@router.get("/records/{topic}/{partition}/{offset}/trace")
@needs("viewer")
def trace_record(
    site: SiteOf,
    caller: CallerOf,
    place: Place,
    wait: Annotated[Wait, Query(description="How long the trace may read, at most 30s.")] = 10,
    retries_within: Annotated[
        str,
        fitting(SPAN, "write a duration, for example 30s, 10m or 2h"),
        Query(
            description="Look for a consumer's failure until this long after each delivery.",
            json_schema_extra={"pattern": f"^{SPAN.pattern}$"},
        ),
    ] = "10m",
) -> models.Trace:
    """Trace a record, step by step, from its first origin to its end.

    Name the record, its delivery or its dead letter. Each origin works. The trace is read from the
    topics. It ends after `wait` or a million records. If it did not read everything, `is_whole` is
    false and `unknown` names the missing parts. `unknown` also names topics that the proxy's user
    may not read, with the command that grants the right. Two traces run at a time. Further calls
    get 503. A trace rests three seconds for each second of work, so that delivery is not delayed.
    Without the right to read contents, `detail` is empty.
    """
    if not is_legal_topic(place.topic):
        raise Problem(404, "not-found", f"This is not a topic name: {TOPIC_NAME_RULE}.")
    with room_in(site.free_traces, "Two traces are running already. Try again later."):
        trace = site.topics.trace(place, wait, parse_delay_ms(retries_within))
    data = trace.data()
    if not caller.contents:
        data["steps"] = [{**step, "detail": ""} for step in data["steps"]]
    return models.Trace.model_validate(data)


@router.post("/cancellations")
@needs("operator")
def cancel(
    site: SiteOf, others: OthersOf, body: models.CancelBody, wait: Wait = 0
) -> models.CancelWritten:
    """Cancel a pending record by id.

    The call writes a cancel to the ingress. A cancel has an effect only in the record's ingress
    partition. `partition` names this partition. Without it, the partition of `key` is used. Without
    `partition` and `key`, the instances look for a pending record with this id, and its partition
    is used. If there is no such record, the partition is computed from the id as from a key.
    Partitions of keys are computed by murmur2, as in Java clients. librdkafka uses murmur2 only
    with `partitioner=murmur2_random`.
    """
    ident, key, partition = body.id.encode(), None, body.partition
    if body.key is not None:
        key = body.key.encode()
    elif partition is None:
        origins = _origins(site, others, body.id)
        if len(origins) > 1:
            detail = f"Several pending records have this id: {origins}. Name the partition."
            raise Problem(409, "ambiguous", detail)
        partition = partition_in(origins[0]) if origins else None
    done = site.broker.cancel(ident, key, partition, wait)
    return models.CancelWritten(id=body.id, **_written(done))


@router.delete("/records/{topic}/{partition}/{offset}")
@needs("operator")
def recall(site: SiteOf, place: Place, wait: Wait = 0) -> models.RecallWritten:
    """Recall a record by its origin.

    The call writes a recall to the record's ingress partition. The recall ends this record. If the
    proxy has rewritten the record, the recall ends the successor. The record needs no id, and may
    be a half message. The proxy signs the recall, so no proof is needed. If many records with ids
    must end, cancels cost less.
    """
    ingress = site.settings.topics.ingress
    if place.topic != ingress:
        raise Problem(
            404,
            "not-found",
            f"Only records of {ingress} can be recalled. Name the origin of the record.",
        )
    done = site.broker.recall(place.partition, str(place), wait)
    return models.RecallWritten(recalls=str(place), **_written(done))


@router.patch("/records/{topic}/{partition}/{offset}")
@needs("operator")
@of_group(Owner(models.MoveWritten))
def reschedule(
    site: SiteOf, place: Place, body: models.MoveBody, wait: Wait = 0
) -> models.MoveWritten:
    """Deliver a pending record at another time.

    The call writes a record with the new time to the same ingress partition. The proxy reads the
    new record, which then replaces the pending one. If the pending record has ended by then, the
    new one ends as `missed`. Key, value, headers, id and target stay the same.

    Name any origin of the record. For a committed half message, the origin of the half message
    works, too. 404: the ingress has deleted the record at this origin. If it is pending, the
    command `pending list` shows its newer origin. 409: the record has ended, is an undecided half
    message, or was not committed within 3 s. A target that is refused now, or an invalid time,
    gets 409, too.
    """
    at_ms = deliver_at_ms(site, body.deliver_at)
    _refuse_unread(site, place)
    offset = place.offset
    done: models.MoveWritten | None = None
    for _ in range(MOST_STEPS):
        moving = _find_moving(site, place.partition, offset, at_ms)
        if moving.at != offset:
            offset = moving.at
            continue
        if moving.record is None:
            if done is not None:
                break
            raise Problem(409, moving.state, WHY_NOT[moving.state])
        written = site.broker.move(moving.record, wait)
        done = models.MoveWritten(moves=str(place), **_written(written))
        if done.outcome != MISSED:
            break
    if done is None:
        raise Problem(503, "busy", "The proxy is rewriting this record. Try again.")
    return done


def _origins(site: Site, others: Others, ident: str) -> list[str]:
    """Return the origins of the pending records with this id, in all instances."""
    origins = [one.origin for one in site.workers.ask(FindId(ident.encode()))]
    for reply in others.ask(f"{PREFIX}/records?{urlencode({'id': ident})}").answers:
        with suppress(ValueError):
            found = models.Records.model_validate(reply.said, extra="ignore")
            origins += [one.origin for one in found.records if one.origin not in origins]
    return origins


def _written(result: ControlResult) -> dict[str, Any]:
    return {"origin": result.origin, "outcome": result.outcome, "detail": result.detail}


def deliver_at_ms(site: Site, deliver_at: object) -> int:
    """Return the new time that a body asks for. Raises Problem."""
    try:
        asked_ms = parse_instant_ms(str(deliver_at))
    except ValueError as error:
        raise Problem(409, "no-such-time", f"`deliver_at`: {error}.") from None
    latest_ms = min(wall_clock_ms() + site.broker.max_delay_ms, LATEST_MS)
    if asked_ms > latest_ms:
        detail = (
            f"`deliver_at` is later than {latest_ms}, which is now plus the setting `max_delay`."
        )
        raise Problem(409, "too-far", detail)
    return asked_ms


def _find_moving(site: Site, partition: int, offset: int, deliver_at_ms: int) -> Moving:
    """Return whether the record can be moved, and how.

    Wait until the proxy has committed the record's offset. Before that, a transaction may abort.
    Then the proxy reads the record again, perhaps with another result."""
    until_s = time.monotonic() + COMMITTED_WITHIN_S
    while True:
        record = site.broker.read(partition, offset)
        if record is None:
            detail = (
                "The ingress has no record at this origin. If the record is still pending, it was "
                "rewritten. `pending list` and /pending/records show its current origin."
            )
            raise Problem(404, "not-found", detail)
        found = site.workers.ask(FindMove(record, deliver_at_ms))
        if not found:
            raise Problem(404, "not-served-here", MOVED_AWAY)
        if found[0].state != NOT_COMMITTED or time.monotonic() > until_s:
            return found[0]
        time.sleep(LOOK_EVERY_S)


def _refuse_unread(site: Site, place: Origin) -> None:
    """Wait for the next status of this process. If the process has not read the offset by then,
    raise Problem."""
    ingress, until_s = site.settings.topics.ingress, time.monotonic() + STATUS_OLD_S
    while True:
        shards = [shard for status in site.read_statuses() for shard in status.shards]
        next_offsets = {shard.partition: shard.next_offset for shard in shards}
        if place.topic != ingress or place.partition not in next_offsets:
            detail = (
                f"This process serves the partitions {[*next_offsets]} of {ingress}. Ask another "
                "instance for others."
            )
            raise Problem(404, "not-served-here", detail)
        upto = next_offsets[place.partition]
        if place.offset < upto:
            return
        if time.monotonic() > until_s:
            detail = (
                f"Partition {place.partition} is read only up to offset {upto}. Try again later."
            )
            raise Problem(404, "not-read-yet", detail)
        time.sleep(LOOK_EVERY_S)


def _text(ident: bytes | None) -> str | None:
    return None if ident is None else ident.decode("utf-8", "backslashreplace")


def _shown(found: Found) -> Mapping[str, object]:
    return {
        "origin": found.origin,
        "id": _text(found.ident),
        "state": found.state,
        "target": found.target,
        "due": found.due_ms,
        "fires": found.fires_ms,
    }


def shown_pending(
    record: PendingRecord, paused: Iterable[str], reasons: Mapping[str, str], now_ms: int
) -> models.PendingRecord:
    """Return a record as the API lists it. `reasons`: target -> why it accepts no records."""
    why: str = record.why
    if why == "scheduled" and record.fires_ms <= now_ms:
        why = "overdue"
    elif why == "rate-limited" and any(fnmatchcase(record.target, pattern) for pattern in paused):
        why = "paused"
    return models.PendingRecord(
        origin=record.origin,
        id=_text(record.ident),
        due=record.due_ms,
        fires=None if record.why == "undecided" else record.fires_ms,
        target=record.target,
        bytes=record.size_bytes,
        why=cast(Any, why),
        attempt=record.attempt,
        reason=reasons.get(record.target) if record.why == "requeued" else None,
    )
