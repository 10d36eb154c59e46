"""The calls for targets and the ingest: pauses, limits, purges, skipped batches."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import WithJsonSchema

from proxy.admin import models
from proxy.admin.calls import REFUSED, CallRoute, PatternPart, Site, SiteOf, Wait, number_upto
from proxy.admin.listing import COUNTED_WITHIN_S, all_pages
from proxy.admin.peers import ANSWER_WITHIN_S, PREFIX
from proxy.admin.problem import Problem
from proxy.admin.tokens import needs
from proxy.admin.whole_group import OthersOf, Total, of_group
from proxy.config.settings import MOST_PER_SECOND, OverdueLimit, TargetLimit, by_precedence
from proxy.kafka.settings_topic import MOST_LIMITS
from proxy.protocol.outcomes import APPLIED
from proxy.protocol.parsed import Purge
from proxy.protocol.times import LATEST_MS, shown_delay
from proxy.scheduling.pending import Sought
from proxy.telemetry.status import Status, covered_by, partitions_of
from storage.store import added

NOTICED_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05

router = APIRouter(route_class=CallRoute, tags=["targets"], responses=REFUSED)


def _is_noticed(site: Site, has_noticed: Callable[[Status], bool]) -> bool:
    """Wait until all workers of this process have noticed a change. Return False if they have not
    noticed it within NOTICED_WITHIN_S."""
    until_s = time.monotonic() + NOTICED_WITHIN_S
    while not all(map(has_noticed, site.read_statuses())):
        if time.monotonic() > until_s:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


@router.get("/pauses")
@needs("viewer")
def get_pauses(site: SiteOf) -> models.Pauses:
    """List paused targets."""
    statuses = site.read_statuses()
    paused = {pattern for status in statuses for pattern in status.paused}
    rates = {name: n for status in statuses for name, n in status.release_rates.items()}
    return models.Pauses(paused=sorted(paused), release_rates=dict(sorted(rates.items())))


@router.put("/pauses/{pattern}")
@needs("operator")
def pause(site: SiteOf, pattern: PatternPart) -> models.Pause:
    """Pause targets.

    A pause applies to all instances and outlives restarts. A record of these targets that falls due
    is written to the ingress again, once, and waits there for the resume. Other targets are not
    delayed.
    """
    site.broker.pause(pattern)
    in_force = _is_noticed(site, lambda status: pattern in status.paused)
    return models.Pause(pattern=pattern, paused=True, per_second=None, in_force=in_force)


@router.delete("/pauses/{pattern}")
@needs("operator")
def resume(
    site: SiteOf,
    pattern: PatternPart,
    per_second: Annotated[
        int | None,
        number_upto(MOST_PER_SECOND),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_PER_SECOND}),
        Query(
            description="Paused records delivered per second, over all partitions.",
            examples=[500],
        ),
    ] = None,
) -> models.Pause:
    """Resume targets.

    Paused records are delivered in order of due, at once or at the rate `per_second`. Each worker
    gets a share of the rate, at least one record a second. If several resumed patterns match a
    target, the last resume applies. To resume a pattern that is not paused sets or removes its
    rate. Each queued record has a time in the queue. A new pause removes the rate, and pauses a
    queued record at its time. If no proxy runs at that time, the record goes to the queue's end.
    """
    site.broker.resume(pattern, per_second)

    def has_noticed(status: Status) -> bool:
        return pattern not in status.paused and status.release_rates.get(pattern) == per_second

    in_force = _is_noticed(site, has_noticed)
    return models.Pause(pattern=pattern, paused=False, per_second=per_second, in_force=in_force)


def _add_ingest(one: models.Ingest, other: models.Ingest) -> models.Ingest:
    one.paused = one.paused or other.paused
    one.unread += other.unread
    return one


@router.get("/ingest")
@needs("viewer")
@of_group(Total(models.Ingest, _add_ingest))
def get_ingest(site: SiteOf) -> models.Ingest:
    """Show whether the ingest is paused."""
    statuses = site.read_statuses()
    return models.Ingest(
        paused=any(status.is_ingest_paused for status in statuses),
        unread=sum(shard.behind for status in statuses for shard in status.shards),
    )


@router.put("/ingest/paused")
@needs("operator")
def pause_ingest(site: SiteOf) -> models.IngestPaused:
    """Pause the ingest.

    The pause applies to all instances and outlives restarts. The ingress is not read until a
    resume. New records, cancels, recalls, purges, commits of half messages and the proxy's own
    rewritten records have no effect until then. Records already read are delivered on time. If a
    partition goes to another worker, this worker first reads all records there at the takeover.
    """
    return _pause_ingest(site, is_paused=True)


@router.delete("/ingest/paused")
@needs("operator")
def resume_ingest(site: SiteOf) -> models.IngestPaused:
    """Resume the ingest."""
    return _pause_ingest(site, is_paused=False)


def _pause_ingest(site: Site, *, is_paused: bool) -> models.IngestPaused:
    site.broker.pause_ingest(is_paused=is_paused)
    in_force = _is_noticed(site, lambda status: status.is_ingest_paused is is_paused)
    return models.IngestPaused(paused=is_paused, in_force=in_force)


@router.get("/limits")
@needs("viewer")
def get_limits(site: SiteOf) -> models.Limits:
    """List the rate caps and rules for overdue records, each with its source."""
    release = site.settings.release
    known = [(*one, "run-time") for one in by_precedence(_limits_set(site)).items()]
    known += [
        (target, TargetLimit(per_second=per_second), "settings")
        for target, per_second in release.per_target.items()
    ]
    for rule in release.overdue:
        overdue = OverdueLimit(older_than_ms=rule.older_than_ms, action=rule.action)
        known.append((rule.targets, TargetLimit(overdue=overdue), "settings"))
    limits: list[Any] = [{**_parts(name, limit), "source": source} for name, limit, source in known]
    return models.Limits(limits=limits, **_of_each_worker(site))


@router.put("/limits")
@needs("operator")
def set_workers_limit(site: SiteOf, body: models.RateBody) -> models.WorkersLimitSet:
    """Set the rate cap of each worker for all targets together.

    The cap applies to all instances and outlives restarts. It replaces the setting
    `release.max_per_second`, and may be lower or higher.
    """
    return _limit_workers(site, body.per_second)


@router.delete("/limits")
@needs("operator")
def clear_workers_limit(site: SiteOf) -> models.WorkersLimitSet:
    """Clear the rate cap that was set at run time. The setting applies again."""
    return _limit_workers(site, None)


def _limit_workers(site: Site, per_second: int | None) -> models.WorkersLimitSet:
    site.broker.limit_workers(per_second)
    in_force = _is_noticed(site, lambda status: status.max_per_second == per_second)
    return models.WorkersLimitSet(**_of_each_worker(site), in_force=in_force)


def _of_each_worker(site: Site) -> dict[str, Any]:
    """Return the rate cap that holds for a single worker, and the source of the cap. While workers
    have different caps, return the lowest cap that was set at run time."""
    set_now = [one.max_per_second for one in site.read_statuses() if one.max_per_second is not None]
    if set_now:
        return {"max_per_second": min(set_now), "max_per_second_source": "run-time"}
    of_settings = site.settings.release.max_per_second
    return {"max_per_second": of_settings, "max_per_second_source": "settings"}


@router.put("/limits/{pattern}")
@needs("operator")
def set_limit(site: SiteOf, pattern: PatternPart, body: models.LimitBody) -> models.LimitSet:
    """Set a rate cap, a rule for overdue records, or both, for the targets of a pattern.

    The limit applies to all instances and outlives restarts. It replaces the earlier cap and rule
    of this pattern, and has precedence over the settings. If several patterns match a target, the
    pattern without wildcards applies, else the longest pattern. Caps and rules are looked up
    separately. At most 1,000 patterns can have limits.
    """
    known = _limits_set(site)
    if pattern not in known and len(known) >= MOST_LIMITS:
        detail = f"{MOST_LIMITS} patterns have run-time limits already. Clear some first."
        raise Problem(409, "too-many", detail)
    return _limit(site, pattern, body.limit())


@router.delete("/limits/{pattern}")
@needs("operator")
def clear_limit(site: SiteOf, pattern: PatternPart) -> models.LimitSet:
    """Clear the limits of a pattern that were set at run time. The settings apply again."""
    return _limit(site, pattern, None)


def _limits_set(site: Site) -> dict[str, TargetLimit]:
    return {name: one for status in site.read_statuses() for name, one in status.limits.items()}


def _limit(site: Site, pattern: str, limit: TargetLimit | None) -> models.LimitSet:
    site.broker.limit(pattern, limit)
    in_force = _is_noticed(site, lambda status: status.limits.get(pattern) == limit)
    return models.LimitSet(**_parts(pattern, limit), in_force=in_force)


def _parts(pattern: str, limit: TargetLimit | None) -> dict[str, Any]:
    rule = limit and limit.overdue
    overdue = rule and {"older_than": shown_delay(rule.older_than_ms), "action": rule.action}
    return {"pattern": pattern, "per_second": limit and limit.per_second, "overdue": overdue}


def _add_purged(one: models.Purged, other: models.Purged) -> models.Purged:
    one.records += other.records
    one.counted_all = one.counted_all and other.counted_all
    one.partitions += other.partitions
    return one


PURGED: Final = Total(models.Purged, _add_purged, within_s=COUNTED_WITHIN_S + ANSWER_WITHIN_S)


@router.post("/purges")
@needs("admin")
def purge(
    site: SiteOf,
    others: OthersOf,
    body: models.PurgeBody,
    wait: Annotated[
        Wait, Query(description="How long to wait until every partition has read the purge.")
    ] = 30,
) -> models.Purged:
    """End the pending records of some targets without delivery.

    A purge ends the records with matching target and due that were written before it. One call
    applies to all partitions and instances. After a reply with `applied` none of these records is
    delivered. Their outcomes follow, at most 300 in each transaction: `cancelled`, with the purge's
    origin in `detail`. Undecided half messages do not end.
    """
    due_to_ms = LATEST_MS if body.due_to is None else body.due_to
    asked = Purge(body.targets, body.due_from or 0, due_to_ms)
    if asked.due_from_ms > asked.due_to_ms:
        raise Problem(409, "nothing-between", "`due_from` is later than `due_to`. Swap them.")
    records, is_all = _purgeable(site, asked)
    purged = models.Purged(
        targets=asked.targets,
        due_from=asked.due_from_ms or None,
        due_to=None if asked.due_to_ms == LATEST_MS else asked.due_to_ms,
        dry_run=body.dry_run,
        records=records,
        counted_all=is_all,
        partitions=covered_by(site.read_statuses()),
    )
    purged = PURGED.with_others(
        others, purged, f"{PREFIX}/purges", {**body.model_dump(), "dry_run": True}
    )
    if body.dry_run:
        return purged
    written = site.broker.purge(asked, wait)
    refused = next((one for one in written if one.outcome not in {None, APPLIED}), None)
    if refused is not None:
        raise Problem(409, "refused", f"{refused.origin} was refused: {refused.detail}.")
    purged.purges = [one.origin for one in written]
    purged.applied = all(one.outcome == APPLIED for one in written)
    return purged


def _purgeable(site: Site, asked: Purge) -> tuple[int, bool]:
    statuses = site.read_statuses()
    if asked.due_from_ms == 0 and asked.due_to_ms == LATEST_MS:
        counts = added([status.pending_by_target for status in statuses])
        if not counts.others:
            return sum(n for target, n in counts.by_name.items() if asked.is_for(target)), True
    records, is_all = 0, True
    for page in all_pages(site.workers.ask, Sought(asked.targets), partitions_of(statuses)):
        is_all = page.next is None
        records += sum(
            one.why != "undecided" and asked.ends(one.target, one.due_ms) for one in page.records
        )
    return records, is_all


@router.post("/skips")
@needs("admin")
def skip_batch(site: SiteOf, body: models.SkipBody) -> models.Skipped:
    """Skip a record batch of the ingress that cannot be read.

    Each of its records becomes a dead letter without content (`record-unreadable`). Reading
    continues after the batch. A skip applies to all instances and is permanent. Only one batch can
    be skipped: the batch at which reading from the committed offset fails. 409 `readable`: the
    partition can be read. 409 `other-batch`: reading fails at another offset.
    """
    batch = site.broker.unreadable_batch(body.partition)
    if batch is None:
        detail = (
            f"Partition {body.partition} can be read from its committed offset, so there is no "
            "batch to skip. If reading fails further on, the records before the batch must be "
            "committed first."
        )
        raise Problem(409, "readable", detail)
    if batch.base != body.offset:
        detail = (
            f"Reading of partition {body.partition} fails at offset {batch.base}, not at "
            f"{body.offset}. Name offset {batch.base} to skip its batch."
        )
        raise Problem(409, "other-batch", detail)

    def has_read_on(status: Status) -> bool:
        return all(
            shard.partition != body.partition or shard.next_offset >= batch.end
            for shard in status.shards
        )

    if not body.dry_run:
        site.broker.skip(body.partition, batch)
    return models.Skipped(
        partition=body.partition,
        offset=batch.base,
        end=batch.end,
        why=batch.error,
        dry_run=body.dry_run,
        in_force=not body.dry_run and _is_noticed(site, has_read_on),
    )
