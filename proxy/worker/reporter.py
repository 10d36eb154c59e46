"""Shows from outside how a worker is: status for the admin port, gauges for Prometheus."""

from __future__ import annotations

import time
from dataclasses import replace

from proxy.clock import Clock
from proxy.kafka.ingress import Ingress
from proxy.kafka.retention_watch import RetentionWatch
from proxy.scheduling.shard import Shard, State
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import ShardState, ShardStatus, Status, StatusBoard
from proxy.worker.pipeline import Pipeline


class Reporter:
    """Fills the status board from the pipeline; called a few times a second by its loop."""

    def __init__(
        self,
        topic: str,
        clock: Clock,
        metrics: Metrics,
        board: StatusBoard,
        retention: RetentionWatch,
    ) -> None:
        self._topic, self._clock = topic, clock
        self._metrics, self._board, self._retention = metrics, board, retention
        self._status = Status()
        self._is_assigned = False

    def assigned(self) -> None:
        """The group has answered for the first time."""
        self._is_assigned = True

    def beat(self) -> None:
        """The loop lives, though it waits for the broker."""
        self._show(replace(self._status, heartbeat_monotonic=time.monotonic()))

    def report(self, pipeline: Pipeline, ingress: Ingress, paused: frozenset[str]) -> None:
        """Take a snapshot of everything."""
        now_ms = self._clock.now_ms()
        by_target: dict[str, int] = {}
        for shard in pipeline.shards.values():
            for target, count in shard.pending_by_target().items():
                by_target[target] = by_target.get(target, 0) + count
        shards = tuple(
            self._shard_status(partition, shard, ingress.newest(partition), now_ms)
            for partition, shard in sorted(pipeline.shards.items())
        )
        self._show(Status(shards, time.monotonic(), self._is_assigned, by_target, paused))
        self._gauges(pipeline, now_ms)

    def _show(self, status: Status) -> None:
        self._status = status
        self._board.show(status)

    def _shard_status(self, partition: int, shard: Shard, end: int, now_ms: int) -> ShardStatus:
        behind = max(0, end - shard.next_offset)
        kept, position = self._retention.kept(partition), shard.position
        return ShardStatus(
            topic=self._topic,
            partition=partition,
            state=self._state(shard),
            next_offset=position.next_offset,
            watermark_ms=position.watermark_ms,
            floor=position.floor,
            pending=shard.pending(),
            behind=behind,
            behind_ms=max(0, now_ms - shard.read_ms) if behind and shard.read_ms else 0,
            undecided=shard.undecided,
            log_start=kept.start if kept else None,
            aging=kept.aging(position.floor, position.next_offset) if kept else 0,
        )

    def _state(self, shard: Shard) -> ShardState:
        if shard.state is State.REPLAYING:
            return "recovering"
        if shard.state is State.CATCHING_UP:
            return "catching-up"
        return "held" if self._clock.is_held or shard.waits_for_clock else "running"

    def _gauges(self, pipeline: Pipeline, now_ms: int) -> None:
        dues = [shard.next_due_ms(now_ms) for shard in pipeline.shards.values()]
        lags_ms = [now_ms - due_ms for due_ms in dues if due_ms is not None]
        self._metrics.due_lag_seconds.set(max(lags_ms, default=0) / 1000)
        self._metrics.clock_offset_seconds.set(self._clock.offset_ms / 1000)
        self._metrics.clock_held.set(float(self._clock.is_held))
