"""The snapshots of all instances, added up for the page and for GET /instances."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from proxy.admin.answers import Count, Instances, InstanceState, ShardState, Unanswered
from proxy.admin.events import SCALES, SHARDS_SHOWN, TARGETS_SHOWN, held
from proxy.admin.peers import PREFIX, Asker, Peers
from proxy.config.settings import Settings

WITHIN_S: Final = 3.0
NO_SNAPSHOT: Final = "Its answer is no snapshot: {}."
Number = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """A part of a snapshot from another instance. Fields of later versions are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class ByTime(Part):
    """Pending records by time, as the page draws them."""

    begins: int = Field(alias="from")
    overdue: Count
    cancelled: Count
    paused: Count
    hour: list[Count] = Field(min_length=SCALES["hour"][1], max_length=SCALES["hour"][1])
    day: list[Count] = Field(min_length=SCALES["day"][1], max_length=SCALES["day"][1])
    month: list[Count] = Field(min_length=SCALES["month"][1], max_length=SCALES["month"][1])


class Refusal(Part):
    """Records that a target refuses for now."""

    records: Count
    oldest_due: int
    why: str


class Shard(Part):
    """An ingress partition."""

    partition: Count
    state: str
    pending: Count
    behind: Count
    undecided: Count


class Snapshot(Part):
    """The snapshot of one instance (`events.Snapshots`)."""

    version: str
    ready: bool
    reason: str
    partitions: list[Count]
    pending: Count
    by_target: dict[str, Count]
    others: Count
    paused: list[str]
    refused: dict[str, Refusal]
    ingest_paused: bool
    disk_full: bool = False
    """Older versions do not send this field."""
    shards: list[Shard]
    shard_count: Count
    by_time: ByTime | None
    delivered: dict[str, Number]
    lateness_sum_s: dict[str, Number]
    dead_letters: dict[str, Number]
    lag_s: Number

    @property
    def overdue(self) -> int | None:
        """Number of overdue records, including records that targets refuse for now."""
        refused = sum(one.records for one in self.refused.values())
        return None if self.by_time is None else self.by_time.overdue + refused


def gathered(settings: Settings, peers: Peers, own: dict[str, Any], asker: Asker) -> dict[str, Any]:
    """Return the snapshot of the whole group: totals, instances, and who did not answer."""
    replies = peers.ask(asker, "GET", f"{PREFIX}/events", within_s=WITHIN_S)
    called = settings.instance_name
    found: list[tuple[str, str | None, Snapshot]] = [(called, None, Snapshot.model_validate(own))]
    silent = replies.silent
    for reply in replies.answers:
        try:
            if reply.status >= 300:
                raise ValueError(reply.detail)
            found.append((reply.instance, reply.address, Snapshot.model_validate(reply.said)))
        except ValueError as error:
            errors = getattr(error, "errors", None)
            why = NO_SNAPSHOT.format(errors()[0]["msg"]) if errors else str(error)
            silent[reply.instance] = why
    silent |= peers.strangers([name for name, _, _ in found])
    snapshots = [one for _, _, one in found]
    covered = sorted(number for one in snapshots for number in one.partitions)
    missing, facts = peers.missing(covered), peers.facts()
    return {
        **own,
        **_totals(snapshots),
        "instance": called,
        "cluster": facts and facts.cluster,
        "group": settings.group_id,
        "partitions": sorted(set(covered)),
        "partitions_missing": missing,
        "complete": missing == [] and len(set(covered)) == len(covered),
        "unanswered": [{"instance": name, "reason": why} for name, why in silent.items()],
        "instances": [_state(*one) for one in found],
    }


def _totals(found: list[Snapshot]) -> dict[str, Any]:
    targets = Counter(_added(one.by_target for one in found))
    shown = dict(targets.most_common(TARGETS_SHOWN))
    paused = sorted({pattern for one in found for pattern in one.paused})
    shards = sorted((shard for one in found for shard in one.shards), key=lambda one: one.partition)
    return {
        "pending": sum(one.pending for one in found),
        "by_target": shown,
        "others": sum(one.others for one in found) + targets.total() - sum(shown.values()),
        "paused": paused,
        "held_targets": held(shown, paused),
        "refused": _refused(found),
        "ingest_paused": any(one.ingest_paused for one in found),
        "shards": [shard.model_dump() for shard in shards[:SHARDS_SHOWN]],
        "shard_count": sum(one.shard_count for one in found),
        "by_time": _by_time([one.by_time for one in found]),
        "delivered": _added(one.delivered for one in found),
        "lateness_sum_s": _added(one.lateness_sum_s for one in found),
        "dead_letters": _added(one.dead_letters for one in found),
        "lag_s": max(one.lag_s for one in found),
    }


def _added(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for name, count in (item for one in counts for item in one.items()):
        total[name] = total.get(name, 0) + count
    return total


def _refused(found: list[Snapshot]) -> dict[str, Any]:
    total: dict[str, Refusal] = {}
    for target, one in (item for snapshot in found for item in snapshot.refused.items()):
        known = total.setdefault(target, Refusal(records=0, oldest_due=one.oldest_due, why=one.why))
        known.records += one.records
        known.oldest_due = min(known.oldest_due, one.oldest_due)
    return {target: one.model_dump() for target, one in total.items()}


def _by_time(found: list[ByTime | None]) -> dict[str, Any] | None:
    """Return the sums, or None while a worker is silent."""
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    rows = {name: zip(*(getattr(one, name) for one in known), strict=True) for name in SCALES}
    return {
        "from": known[0].begins,
        "overdue": sum(one.overdue for one in known),
        "cancelled": sum(one.cancelled for one in known),
        "paused": sum(one.paused for one in known),
        **{name: [sum(row) for row in rows[name]] for name in SCALES},
    }


def _state(name: str, address: str | None, one: Snapshot) -> dict[str, Any]:
    return {
        "name": name,
        "address": address,
        "version": one.version,
        "ready": one.ready,
        "reason": one.reason,
        "disk_full": one.disk_full,
        "pending": one.pending,
        "overdue": one.overdue,
        "oldest_overdue_s": one.lag_s,
        "shards": [shard.model_dump() for shard in one.shards[:SHARDS_SHOWN]],
    }


def instances_of(whole: Mapping[str, Any]) -> Instances:
    """Return the answer of GET /instances from the snapshot of the whole group."""
    overdue = [one["overdue"] for one in whole["instances"]]
    return Instances(
        cluster=whole["cluster"],
        group=whole["group"],
        complete=whole["complete"],
        unanswered=[Unanswered(**one) for one in whole["unanswered"]],
        pending=whole["pending"],
        overdue=None if None in overdue else sum(overdue),
        paused=whole["by_time"] and whole["by_time"]["paused"],
        oldest_overdue_s=whole["lag_s"],
        partitions=whole["partitions"],
        partitions_missing=whole["partitions_missing"],
        instances=[
            InstanceState(**{**one, "shards": [ShardState(**shard) for shard in one["shards"]]})
            for one in whole["instances"]
        ],
    )
