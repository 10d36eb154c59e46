"""The status of a worker: an immutable snapshot, so other threads need no lock."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.config.settings import TargetLimit
from proxy.telemetry.collectors import OTHER
from proxy.telemetry.refused_targets import RefusedTarget
from storage.store import NO_COUNTS, TargetCounts

ShardState = Literal["recovering", "catching-up", "running", "held", "full", "unreadable"]
SHARD_STATES: tuple[ShardState, ...] = get_args(ShardState)
CAUGHT_UP: frozenset[ShardState] = frozenset({"running", "held", "full"})


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One ingress partition. `next_offset` is O, `watermark_ms` T and `floor` F of
    docs/exactly-once.md#what-is-committed."""

    topic: str
    partition: int
    state: ShardState
    """`held`: the wall clock is too far ahead. `full`: a limit of the setting `admission` is
    reached. `unreadable`: no client can read the batch at `unreadable_at`."""
    next_offset: int
    watermark_ms: int
    floor: int
    pending: int
    behind: int
    behind_ms: int = 0
    """Age of the last record read, while `behind` is above 0."""
    undecided: int = 0
    oldest_undecided_ms: int | None = None
    log_start: int | None = None
    """The first offset that the broker has. None: not known yet."""
    aging: int = 0
    """Number of needed offsets that are so old that the broker may soon delete them."""
    ahead_ms: int = 0
    pending_bytes: int = 0
    cancelled: int = 0
    """Cancelled or replaced records in the local data. `pending` excludes them."""
    is_purging: bool = False
    """Whether purged records still need outcomes."""
    unreadable_at: int | None = None
    unreadable_why: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """One worker's shards, and its loop's last heartbeat (`time.monotonic()`)."""

    shards: tuple[ShardStatus, ...] = ()
    heartbeat_monotonic: float = 0.0
    assigned: bool = False
    """Whether the group has assigned partitions to the worker, even if the list was empty."""
    pending_by_target: TargetCounts = NO_COUNTS
    paused: frozenset[str] = frozenset()
    """Patterns of the targets that are paused."""
    pending_bytes_by_target: TargetCounts = NO_COUNTS
    release_rates: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, TargetLimit] = field(default_factory=dict)
    is_ingest_paused: bool = False
    max_per_second: int | None = None
    refused: tuple[RefusedTarget, ...] = ()
    is_disk_full: bool = False
    lost_why: str = ""
    """Why the last session was lost. Empty once partitions are assigned again."""


def partitions_of(statuses: Iterable[Status]) -> list[int]:
    """Return the ingress partitions that these workers serve."""
    return sorted({shard.partition for status in statuses for shard in status.shards})


def covered_by(statuses: Iterable[Status]) -> list[int]:
    """Return the partitions that have caught up: all their pending records are known."""
    known = (shard for status in statuses for shard in status.shards)
    return sorted({shard.partition for shard in known if shard.state in CAUGHT_UP})


def is_ready(statuses: Iterable[Status]) -> bool:
    """Whether every worker has joined the group, and every shard has caught up."""
    known = list(statuses)
    return bool(known) and all(
        status.assigned and all(shard.state in CAUGHT_UP for shard in status.shards)
        for status in known
    )


class StatusBoard:
    """Holds the newest `Status` of one worker."""

    def __init__(self, started_monotonic: float) -> None:
        self._status = Status(heartbeat_monotonic=started_monotonic)

    def show(self, status: Status) -> None:
        self._status = status

    def heartbeat(self) -> None:
        """Show that the loop is alive while it waits for the broker."""
        self._status = replace(self._status, heartbeat_monotonic=time.monotonic())

    def read(self) -> Status:
        return self._status


ShardFact = tuple[str, str, Callable[[ShardStatus], float | None]]
SHARD_FACTS: Final[tuple[ShardFact, ...]] = (
    (
        "watermark_seconds",
        "All records due up to this time have ended. Moves with the clock, at least every 10 s.",
        lambda shard: shard.watermark_ms / 1000,
    ),
    (
        "watermark_ahead_seconds",
        "Watermark minus the broker's clock, if the watermark is ahead. 0 is normal.",
        lambda shard: shard.ahead_ms / 1000,
    ),
    ("next_offset", "Next ingress offset to read.", lambda shard: shard.next_offset),
    ("floor_offset", "Lowest ingress offset still needed.", lambda shard: shard.floor),
    (
        "log_start_offset",
        "First ingress offset that the broker has. Read every 15 s.",
        lambda shard: shard.log_start,
    ),
    (
        "aging_offsets",
        "Needed or unread offsets closer to their deletion than to their rewriting. 0 is normal.",
        lambda shard: shard.aging,
    ),
    ("shard_pending_records", "Pending records.", lambda shard: shard.pending),
    (
        "shard_pending_bytes",
        "Bytes of pending records in the local data. Includes cancelled records until their due.",
        lambda shard: shard.pending_bytes,
    ),
    (
        "undecided_half_messages",
        "Half messages without commit or rollback.",
        lambda shard: shard.undecided,
    ),
    (
        "oldest_undecided_half_message_timestamp_seconds",
        "Time of the oldest undecided half message. NaN if none, or not yet read after a takeover.",
        lambda s: math.nan if s.oldest_undecided_ms is None else s.oldest_undecided_ms / 1000,
    ),
    (
        "purge_under_way",
        "1 while purged records still lack their outcomes, else 0.",
        lambda shard: float(shard.is_purging),
    ),
    (
        "unreadable_offset",
        "Ingress offset that cannot be read. No series if all can be read.",
        lambda shard: shard.unreadable_at,
    ),
    ("enqueue_lag_records", "Unread ingress records.", lambda shard: shard.behind),
    (
        "enqueue_lag_seconds",
        "Age of the last read ingress record. 0 if no record is unread.",
        lambda shard: shard.behind_ms / 1000,
    ),
)


class StatusCollector(Collector):
    """Gauges of the newest `Status`."""

    def __init__(self, read_status: Callable[[], Status], targets_shown: int) -> None:
        self._read_status, self._targets_shown = read_status, targets_shown

    def collect(self) -> Iterator[Metric]:
        status = self._read_status()
        records, in_bytes = status.pending_by_target, status.pending_bytes_by_target
        most = self._targets_shown
        yield _by_target("pending_records", "Pending records by target.", records, most)
        yield _by_target(
            "pending_bytes",
            "Bytes of pending records by target. Cancelled records are included until their due "
            "time.",
            in_bytes,
            most,
        )
        ready = float(is_ready([status]))
        yield GaugeMetricFamily(
            "delay_proxy_ready", "1 while the worker is ready, else 0.", value=ready
        )
        paused = float(status.is_ingest_paused)
        text = "1 while an operator has paused the ingest, else 0."
        yield GaugeMetricFamily("delay_proxy_ingest_paused", text, value=paused)
        for name, text, read in SHARD_FACTS:
            family = GaugeMetricFamily(f"delay_proxy_{name}", text, labels=["partition"])
            for shard in status.shards:
                if (value := read(shard)) is not None:
                    family.add_metric([str(shard.partition)], value)
            yield family
        yield _states(status.shards)


def _states(shards: Iterable[ShardStatus]) -> Metric:
    family = GaugeMetricFamily(
        "delay_proxy_shard_state",
        "1 for the current state of a shard, 0 for its other states. `held`: the wall clock is "
        "too far ahead. `full`: a limit of `admission` is reached. `unreadable`: a record batch "
        "cannot be read.",
        labels=["partition", "state"],
    )
    for shard in shards:
        for state in SHARD_STATES:
            family.add_metric([str(shard.partition), state], float(shard.state == state))
    return family


def _by_target(name: str, text: str, counts: TargetCounts, most: int) -> Metric:
    family = GaugeMetricFamily(
        f"delay_proxy_{name}",
        f"{text} The largest targets have names (setting `admin.targets_shown`). Others are "
        f"counted as `{OTHER}`.",
        labels=["target"],
    )
    shown, others = counts.largest(most)
    for target, count in shown.items():
        family.add_metric([target], count)
    if others:
        family.add_metric([OTHER], others)
    return family
