"""What the proxy counts for Prometheus. Every name begins with `delay_proxy_`.

Counters are moved by the worker, once per transaction; all that describes a shard is read from the
worker's `Status` at the moment of the scrape, so a shard that has moved away leaves nothing behind.
Every label has a bounded number of values.
"""

import math
import time
from collections import Counter as Totals
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.protocol.outcomes import DEAD_LETTERED, OUTCOMES, REASONS
from proxy.telemetry.collectors import (
    OTHER,
    Intake,
    Numbers,
    RefusedTargets,
    RetryMetrics,
    TargetMetrics,
)
from proxy.telemetry.loop_steps import LoopSteps
from proxy.telemetry.status import SHARD_STATES, ShardStatus, Status, is_ready
from storage.store import TargetCounts

TARGETS_SHOWN = 50
REASONS_SHOWN = 50
LATENESS_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000, 600_000)
HOUR_MS = 3_600_000
DELAY_BOUNDS_MS = (
    *(1_000, 10_000, 60_000, 600_000),
    *(HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS, 30 * 24 * HOUR_MS),
)
TRANSACTION_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
TransactionResult = Literal["committed", "aborted"]
PurgeState = Literal["taken-in", "done"]
ThrottledDirection = Literal["writing", "reading"]
TraceResult = Literal["exported", "dropped", "failed", "deleted", "invalid"]


class Metrics:
    """All metrics of one worker, in a registry of their own.

    `read_status` is asked at each scrape, from the admin server's thread; `targets_shown` have
    series of their own, and as many consumer groups.
    """

    def __init__(
        self, read_status: Callable[[], Status] = Status, targets_shown: int = TARGETS_SHOWN
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._reasons: set[str] = set(REASONS)
        self.deliveries = self._counter("deliveries", "Records delivered to their target.")
        self.transactions = self._counter(
            "transactions", "Kafka transactions by how they ended.", ["result"]
        )
        self.dead_letters = self._counter(
            "dead_letters", "Records that ended as dead letters, by reason.", ["reason"]
        )
        self.outcomes = self._counter(
            "outcomes",
            "Records that ended otherwise than by delivery or as dead letters at once, by outcome.",
            ["outcome"],
        )
        self.traced = self._counter("traced_records", "What became of spans.", ["result"])
        self.purges = self._counter("purges", "Purges of an ingress partition.", ["state"])
        self.purged_records = self._counter("purged_records", "Records that purges have ended.")
        self._begin_at_zero()
        self.sessions_lost = self._counter(
            "sessions_lost", "Sessions with the broker that were dropped, and begun anew."
        )
        self._throttled = self._counter(
            "throttled_seconds",
            "For how long the broker said that it throttles what is written, or read.",
            ["direction"],
        )
        for direction in get_args(ThrottledDirection):
            self._throttled.labels(direction)
        self.transaction_seconds = Histogram(
            "delay_proxy_transaction_seconds",
            "From the begin of a transaction to the answer to its commit.",
            buckets=TRANSACTION_BOUNDS_S,
            registry=self.registry,
        )
        self.due_lag_seconds = self._gauge(
            "due_lag_seconds", "How long the oldest due record has waited, tried again or not."
        )
        self._make_gauges_of_clocks()
        self._make_gauges_of_room()
        self.ingress_partitions = self._gauge(
            "ingress_partitions", "Partitions of the ingress topic, whoever serves them."
        )
        self.targets = TargetMetrics(targets_shown, LATENESS_BOUNDS_MS, DELAY_BOUNDS_MS)
        retries = RetryMetrics(targets_shown)
        self.intake = Intake(self.targets, retries)
        self.steps = LoopSteps(self.registry)
        status = StatusCollector(read_status, targets_shown)
        self.refused = RefusedTargets()
        self._register(self.targets, retries, self.refused, status)

    def _make_gauges_of_clocks(self) -> None:
        self.clock_offset_seconds = self._gauge(
            "clock_offset_seconds", "Wall clock minus the logical clock that decides what is due."
        )
        self.clock_held = self._gauge(
            "clock_held", "1 while the wall clock is ahead by too much and not believed, else 0."
        )
        self.clock_lead_seconds = self._gauge(
            "clock_lead_seconds", "Wall clock minus the broker's; NaN while that is not known."
        )
        self.clock_lead_seconds.set(math.nan)
        self._gauge("wall_clock_seconds", "This machine's clock.").set_function(time.time)

    def _make_gauges_of_room(self) -> None:
        """Room on the disk and in memory."""
        self.store_bytes = self._gauge("store_bytes", "Size of the local data on disk.")
        self.disk_bytes = self._gauge("disk_bytes", "Size of the disk that data_dir lies on.")
        self.disk_free_bytes = self._gauge("disk_free_bytes", "What is left of that disk.")
        self.disk_held = self._gauge(
            "disk_held", "1 while no new records are read for want of room on that disk, else 0."
        )
        self.memory_budget_bytes = self._gauge(
            "memory_budget_bytes", "What the records that workers have in hand may take in memory."
        )
        self.memory_used_bytes = self._gauge(
            "memory_used_bytes", "What of that budget is used by shards: client queues not counted."
        )
        self.memory_exceeded = self._gauge(
            "memory_exceeded", "1 while nothing is fetched, since shards have used up their share."
        )

    def count_deliveries(self, targets: Sequence[str], lateness_ms: Numbers) -> None:
        """Count what a committed transaction delivered, each record to its target so late."""
        self.targets.delivered(targets, lateness_ms)
        self.deliveries.inc(len(targets))

    def count_throttled(self, direction: ThrottledDirection, seconds: float) -> None:
        """The broker has said that it throttles a client of the proxy for so long."""
        self._throttled.labels(direction).inc(seconds)

    def count_transaction(self, result: TransactionResult, seconds: float) -> None:
        """Count one transaction and the time it took."""
        self.transactions.labels(result).inc()
        self.transaction_seconds.observe(seconds)

    def count_dead_letters(self, by_reason: Mapping[str, int]) -> None:
        """Count dead letters; a reason beyond the bound counts as `(other)`."""
        for reason, count in by_reason.items():
            if len(self._reasons) < REASONS_SHOWN:
                self._reasons.add(reason)
            self.dead_letters.labels(reason if reason in self._reasons else OTHER).inc(count)

    def count_outcomes(self, kinds: Iterable[str]) -> None:
        """Count records that ended otherwise than by delivery, and control records."""
        for kind, count in Totals(kinds).items():
            self.outcomes.labels(kind).inc(count)

    def count_purge(self, state: PurgeState) -> None:
        """Count a purge of one partition, as it is taken in or done."""
        self.purges.labels(state).inc()

    def count_traced(self, result: TraceResult, records: int) -> None:
        """Count what became of the spans of records."""
        self.traced.labels(result).inc(records)

    def count_lost_session(self) -> None:
        """Count it; until the next session nobody knows what is due."""
        self.sessions_lost.inc()
        self.due_lag_seconds.set(math.nan)

    def show_disk(self, store_bytes: int, disk_bytes: int, free_bytes: int) -> None:
        """Show how much room the local data takes, of how much, and what is left."""
        self.store_bytes.set(store_bytes)
        self.disk_bytes.set(disk_bytes)
        self.disk_free_bytes.set(free_bytes)

    def _register(self, *collectors: Collector) -> None:
        """These, and what is known of the process."""
        for collector in collectors:
            self.registry.register(collector)
        ProcessCollector("delay_proxy", registry=self.registry)
        Info("delay_proxy_build", "Version of the proxy.", registry=self.registry).info(
            {"version": __version__}
        )

    def _begin_at_zero(self) -> None:
        """A series that begins with its first count hides that count from `increase`."""
        for result in get_args(TransactionResult):
            self.transactions.labels(result)
        for traced in get_args(TraceResult):
            self.traced.labels(traced)
        for state in get_args(PurgeState):
            self.purges.labels(state)
        for reason in REASONS:
            self.dead_letters.labels(reason)
        for outcome in OUTCOMES:
            if outcome != DEAD_LETTERED:  # counted by reason
                self.outcomes.labels(outcome)

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"delay_proxy_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"delay_proxy_{name}", text, registry=self.registry)


class StatusCollector(Collector):
    """Turns the newest `Status` into gauges."""

    def __init__(self, read_status: Callable[[], Status], targets_shown: int) -> None:
        self._read_status, self._targets_shown = read_status, targets_shown

    def collect(self) -> Iterator[Metric]:
        """Pending records by target, whether all is ready, then a gauge per fact about a shard."""
        status = self._read_status()
        records, in_bytes = status.pending_by_target, status.pending_bytes_by_target
        most = self._targets_shown
        yield _by_target("pending_records", "Records waiting for their due", records, most)
        yield _by_target(
            "pending_bytes",
            "Bytes in the local data of what waits, of what was cancelled until its due, too",
            in_bytes,
            most,
        )
        ready = float(is_ready([status]))
        yield GaugeMetricFamily("delay_proxy_ready", "1 while /readyz would say so.", value=ready)
        paused = float(status.is_ingest_paused)
        text = "1 while an operator wants no new records to be read, else 0."
        yield GaugeMetricFamily("delay_proxy_ingest_paused", text, value=paused)
        for name, text, read in SHARD_FACTS:
            family = GaugeMetricFamily(f"delay_proxy_{name}", text, labels=["partition"])
            for shard in status.shards:
                if (value := read(shard)) is not None:
                    family.add_metric([str(shard.partition)], value)
            yield family
        yield _states(status.shards)


ShardFact = tuple[str, str, Callable[[ShardStatus], float | None]]
SHARD_FACTS: tuple[ShardFact, ...] = (
    ("watermark_seconds", "All due up to here has ended.", lambda shard: shard.watermark_ms / 1000),
    (
        "watermark_ahead_seconds",
        "How far the watermark lies beyond the broker's clock: 0 when all is well.",
        lambda shard: shard.ahead_ms / 1000,
    ),
    ("next_offset", "Next ingress offset to read.", lambda shard: shard.next_offset),
    ("floor_offset", "Lowest ingress offset still needed.", lambda shard: shard.floor),
    ("log_start_offset", "First ingress offset that the broker has.", lambda s: s.log_start),
    (
        "aging_offsets",
        "Ingress offsets still needed that are nearer to their deletion than to their rewriting.",
        lambda shard: shard.aging,
    ),
    ("shard_pending_records", "Records waiting for their due.", lambda shard: shard.pending),
    (
        "shard_pending_bytes",
        "Bytes in the local data of what waits, of what was cancelled until its due, too.",
        lambda shard: shard.pending_bytes,
    ),
    (
        "undecided_half_messages",
        "Half messages that nobody has committed or rolled back.",
        lambda shard: shard.undecided,
    ),
    (
        "oldest_undecided_half_message_timestamp_seconds",
        "When the oldest of them was written; NaN where there is none, or it is not known.",
        lambda s: math.nan if s.oldest_undecided_ms is None else s.oldest_undecided_ms / 1000,
    ),
    (
        "purge_under_way",
        "1 while records that a purge has ended are still to get their outcomes, else 0.",
        lambda shard: float(shard.is_purging),
    ),
    (
        "unreadable_offset",
        "Where the ingress cannot be read on; without a value while it can.",
        lambda shard: shard.unreadable_at,
    ),
    ("enqueue_lag_records", "Ingress records not read yet.", lambda shard: shard.behind),
    (
        "enqueue_lag_seconds",
        "Age of the last ingress record read, while there are records not read yet.",
        lambda shard: shard.behind_ms / 1000,
    ),
)


def _states(shards: Iterable[ShardStatus]) -> Metric:
    family = GaugeMetricFamily(
        "delay_proxy_shard_state",
        "1 for the state a shard is in, 0 for the others.",
        labels=["partition", "state"],
    )
    for shard in shards:
        for state in SHARD_STATES:
            family.add_metric([str(shard.partition), state], float(shard.state == state))
    return family


def _by_target(name: str, text: str, counts: TargetCounts, most: int) -> Metric:
    family = GaugeMetricFamily(
        f"delay_proxy_{name}",
        f"{text}: the targets with most, and `{OTHER}`.",
        labels=["target"],
    )
    shown, others = counts.largest(most)
    for target, count in shown.items():
        family.add_metric([target], count)
    if others:
        family.add_metric([OTHER], others)
    return family
