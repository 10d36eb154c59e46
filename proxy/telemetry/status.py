"""What a worker shows of itself: one immutable snapshot, replaced as a whole.

The worker's loop writes it, the admin server and the metrics read it from other threads. Nothing
is shared but the reference, so neither side needs a lock.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from proxy.config.target_limit import TargetLimit
from proxy.telemetry.collectors import RefusedTarget
from storage.store import NO_COUNTS, TargetCounts

ShardState = Literal["recovering", "catching-up", "running", "held", "full", "unreadable"]
SHARD_STATES: tuple[ShardState, ...] = get_args(ShardState)
CAUGHT_UP: frozenset[ShardState] = frozenset({"running", "held", "full"})


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One ingress partition as this worker sees it.

    `state`: `held` by the clock; `full` while as much waits as the setting `admission` allows;
    `unreadable` while the ingress cannot be read on at the offset `unreadable_at`, for the reason
    `unreadable_why`.

    `next_offset` is O, `watermark_ms` T and `floor` F of docs/exactly-once.md#what-is-committed.
    `behind` counts the ingress records not read yet, `behind_ms` is the age of the last one read
    while `behind` is above 0, `undecided` counts half messages, the oldest
    of them was written at `oldest_undecided_ms`. `log_start` is the first offset
    that the broker still has, None before it was asked; `aging` counts the offsets from the floor
    on that it may delete soon. `pending_bytes`: what waits in the local
    data. `cancelled` counts what was cancelled or replaced and lies there until its time; `pending`
    is without it. `is_purging`: records that a purge has ended have not all got their outcome yet.
    """

    topic: str
    partition: int
    state: ShardState
    next_offset: int
    watermark_ms: int
    floor: int
    pending: int
    behind: int
    behind_ms: int = 0
    undecided: int = 0
    oldest_undecided_ms: int | None = None
    log_start: int | None = None
    aging: int = 0
    ahead_ms: int = 0
    pending_bytes: int = 0
    cancelled: int = 0
    is_purging: bool = False
    unreadable_at: int | None = None
    unreadable_why: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """One worker: its shards, and when its loop last turned (`time.monotonic()`).

    `pending_by_target` and `pending_bytes_by_target` count over all its shards; nobody changes them
    once they are here.
    `assigned` becomes true with the group's first answer, an empty one included: a worker that
    has joined and got no partition is idle, not unready. `paused`: patterns of targets;
    `release_rates`, `limits`, by pattern, and `max_per_second`: what else operators have set at run
    time.
    """

    shards: tuple[ShardStatus, ...] = ()
    heartbeat_monotonic: float = 0.0
    assigned: bool = False
    pending_by_target: TargetCounts = NO_COUNTS
    paused: frozenset[str] = frozenset()
    pending_bytes_by_target: TargetCounts = NO_COUNTS
    release_rates: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, TargetLimit] = field(default_factory=dict)
    is_ingest_paused: bool = False
    max_per_second: int | None = None
    refused: tuple[RefusedTarget, ...] = ()
    """Targets that do not take records; these wait for their next attempt."""
    is_disk_held: bool = False


def partitions_of(statuses: Iterable[Status]) -> list[int]:
    """Of the ingress, in order: those that these workers serve."""
    return sorted({shard.partition for status in statuses for shard in status.shards})


def covered_by(statuses: Iterable[Status]) -> list[int]:
    """Of these those of which all that waits is known: they have caught up."""
    known = (shard for status in statuses for shard in status.shards)
    return sorted({shard.partition for shard in known if shard.state in CAUGHT_UP})


def is_ready(statuses: Iterable[Status]) -> bool:
    """Every worker has joined the group, and every shard of theirs has caught up."""
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
        """Replace the snapshot; called by the worker's loop."""
        self._status = status

    def heartbeat(self) -> None:
        """The worker's loop lives, though it waits for the broker."""
        self._status = replace(self._status, heartbeat_monotonic=time.monotonic())

    def read(self) -> Status:
        """The newest snapshot; called from any thread."""
        return self._status
