"""A worker's status for the admin port, and its gauges for Prometheus."""

import math
import time
from dataclasses import dataclass
from typing import Final, Self

from proxy.admin.queries import QueryMailbox
from proxy.clock import Clock
from proxy.dispatch.release_control import ReleaseControl, WorkerRateLimit
from proxy.kafka.ingress import Ingress
from proxy.kafka.log_ranges import RetentionWatch
from proxy.recovery.local_state import FolderSizes, LocalState
from proxy.scheduling.shard import Shard, State
from proxy.session.pipeline import Pipeline
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import ShardState, ShardStatus, Status, StatusBoard
from storage.store import NO_COUNTS, added

PAUSE_PER_COUNTING: Final = 50
"""The pause after counting by target, in multiples of the counting time."""


@dataclass(frozen=True, slots=True)
class AdminSide:
    """A worker's newest status, its metrics, and its mailbox for queries. They outlive sessions."""

    board: StatusBoard
    metrics: Metrics
    mailbox: QueryMailbox

    @classmethod
    def of_new_worker(cls, targets_shown: int) -> Self:
        """Make the state of a new worker. `targets_shown` targets have metrics of their own."""
        board = StatusBoard(time.monotonic())
        return cls(board, Metrics(board.read, targets_shown), QueryMailbox())

    def show_lost_session(self, why: str, *, is_disk_full: bool = False) -> None:
        """Show that the worker lives, but has no shards until the next session, and why."""
        self.metrics.count_lost_session()
        self.metrics.show(disk_full=is_disk_full)
        known = self.board.read()
        self.board.show(
            Status(
                heartbeat_monotonic=time.monotonic(),
                paused=known.paused,
                release_rates=known.release_rates,
                limits=known.limits,
                max_per_second=known.max_per_second,
                is_ingest_paused=known.is_ingest_paused,
                is_disk_full=is_disk_full,
                lost_why=why,
            )
        )


class Reporter:
    """Fills a worker's status and gauges, a few times a second."""

    def __init__(
        self,
        pipeline: Pipeline,
        ingress: Ingress,
        release: ReleaseControl,
        rate: WorkerRateLimit,
        clock: Clock,
        side: AdminSide,
        retention: RetentionWatch,
        local: LocalState,
    ) -> None:
        self._pipeline, self._ingress = pipeline, ingress
        self._release, self._rate, self._clock = release, rate, clock
        self._board, self._metrics = side.board, side.metrics
        self._retention, self._local = retention, local
        self._sizes = FolderSizes()
        self._next_targets_s = 0.0
        self._by_target = self._bytes_by_target = NO_COUNTS

    def report(self) -> None:
        """Show the status. Then ask the broker for offset ranges, which a later status shows."""
        now_ms, shards = self._clock.now_ms(), self._pipeline.shards
        self._count_by_target()
        statuses = tuple(self._shard_status(p, shards[p], now_ms) for p in sorted(shards))
        self._board.show(
            Status(
                statuses,
                time.monotonic(),
                self._pipeline.is_assigned,
                self._by_target,
                self._release.paused,
                self._bytes_by_target,
                self._release.release_rates,
                self._release.limits,
                self._pipeline.back_pressure.is_ingest_paused,
                self._rate.set_at_run_time,
                self._metrics.refused.now(),
                self._is_disk_full(),
                "" if self._pipeline.is_assigned else self._board.read().lost_why,
            )
        )
        self._show_gauges(now_ms)
        store_bytes = self._sizes.look(self._local.folders(shards))
        if store_bytes is not None:
            size_bytes, free_bytes = self._local.disk_size_and_free_bytes()
            self._metrics.show(
                store_bytes=store_bytes, disk_bytes=size_bytes, disk_free_bytes=free_bytes
            )
        self._retention.look(shards)

    def _count_by_target(self) -> None:
        """Count by target. If the shards have many targets, count rarely."""
        began_s = time.monotonic()
        if began_s >= self._next_targets_s:
            shards = self._pipeline.shards.values()
            self._by_target = added([shard.pending_by_target() for shard in shards])
            self._metrics.targets.meet(self._by_target.by_name)
            self._bytes_by_target = added(
                [shard.store.pending_bytes_by_target() for shard in shards]
            )
            ended_s = time.monotonic()
            self._next_targets_s = ended_s + (ended_s - began_s) * PAUSE_PER_COUNTING

    def _shard_status(self, partition: int, shard: Shard, now_ms: int) -> ShardStatus:
        retained, position = self._retention.retained(partition), shard.position
        end = max(self._ingress.newest(partition), retained.end if retained else -1)
        behind = max(0, end - shard.next_offset)
        ahead_ms = self._clock.ahead_ms(position.watermark_ms)
        pending, stuck = shard.pending(), self._ingress.stuck().get(partition)
        return ShardStatus(
            topic=self._ingress.topic,
            partition=partition,
            state="unreadable" if stuck else self._state(partition, shard, ahead_ms),
            next_offset=position.next_offset,
            watermark_ms=position.watermark_ms,
            floor=position.floor,
            pending=pending,
            behind=behind,
            behind_ms=max(0, now_ms - shard.read_ms) if behind and shard.read_ms else 0,
            undecided=len(shard.half_messages),
            oldest_undecided_ms=shard.half_messages.oldest_ms,
            log_start=retained.start if retained else None,
            aging=retained.aging(position.floor) if retained else 0,
            ahead_ms=ahead_ms,
            pending_bytes=shard.store.pending_bytes(),
            cancelled=shard.store.pending() - pending,
            is_purging=position.purge is not None,
            unreadable_at=stuck.offset if stuck else None,
            unreadable_why=stuck.error if stuck else None,
        )

    def _state(self, partition: int, shard: Shard, ahead_ms: int) -> ShardState:
        if shard.state is State.REPLAYING:
            return "recovering"
        if shard.state is State.CATCHING_UP:
            return "catching-up"
        is_held = self._clock.stands_still or ahead_ms > self._clock.max_step_ms
        if is_held or shard.waits_for_clock:
            return "held"
        return "full" if self._pipeline.back_pressure.is_full(partition) else "running"

    def _is_disk_full(self) -> bool:
        """Return True also if the last session ended because of a full disk, and this session has
        no shard yet."""
        is_full_again = not self._pipeline.shards and self._board.read().is_disk_full
        return self._pipeline.back_pressure.is_disk_full or is_full_again

    def _show_gauges(self, now_ms: int) -> None:
        dues = [shard.next_fires_ms(now_ms) for shard in self._pipeline.shards.values()]
        dues += [one.oldest_due_ms for one in self._metrics.refused.now()]
        lags_ms = [now_ms - due_ms for due_ms in dues if due_ms is not None]
        lead_ms = self._clock.lead_ms
        self._metrics.show(
            due_lag_seconds=max(lags_ms, default=0) / 1000,
            clock_offset_seconds=self._clock.offset_ms / 1000,
            clock_lead_seconds=math.nan if lead_ms is None else lead_ms / 1000,
            clock_held=self._clock.is_held,
            disk_full=self._is_disk_full(),
            memory_used_bytes=self._pipeline.memory.used_bytes,
            memory_exceeded=self._pipeline.memory.is_exceeded,
        )
