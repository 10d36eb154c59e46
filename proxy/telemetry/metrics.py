"""Prometheus metrics. Each scrape makes the gauges of shards from the worker's newest `Status`, so
a shard that was given up has no series."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar, TypeVarTuple, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from proxy import __version__
from proxy.protocol.outcomes import DEAD_LETTERED, OUTCOMES, REASONS
from proxy.telemetry.collectors import OTHER, Intake, Numbers, RetryMetrics, TargetMetrics
from proxy.telemetry.help_texts import GAUGES, PURGES, TRACED_RECORDS, TRANSACTIONS
from proxy.telemetry.refused_targets import RefusedTargets
from proxy.telemetry.status import Status, StatusCollector

TARGETS_SHOWN: Final = 50
REASONS_SHOWN: Final = 50
LATENESS_BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 60_000, 600_000),
)
HOUR_MS: Final = 3_600_000
DELAY_BOUNDS_MS: Final = (
    *(1_000, 10_000, 60_000, 600_000),
    *(HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS, 30 * 24 * HOUR_MS),
)
TRANSACTION_BOUNDS_S: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEP_BOUNDS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
TransactionResult = Literal["committed", "aborted"]
PurgeState = Literal["taken-in", "done"]
ThrottledDirection = Literal["writing", "reading"]
TraceResult = Literal["exported", "dropped", "failed", "deleted", "invalid"]
Step = Literal["fetch", "confirm", "put", "due", "publish", "tidy", "answer", "look"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
"""`proxy.session.session` makes the last two steps, and `proxy.session.pipeline` the others."""

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class LoopSteps:
    """Durations of steps of a worker's loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "delay_proxy_loop_step_seconds",
            "Duration of a step of the loop. `fetch` includes up to 0.05 s of waiting for records.",
            ["step"],
            buckets=STEP_BOUNDS_S,
            registry=registry,
        )
        self._seconds = {step: seconds.labels(step) for step in STEPS}

    def timed(
        self, step: Step, do: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        began_s = time.perf_counter()
        try:
            return do(*arguments)
        finally:
            self._seconds[step].observe(time.perf_counter() - began_s)


class Metrics:
    """All metrics of one worker, in a registry of their own. Scrapes call `read_status` in another
    thread. `targets_shown` limits series of targets and groups."""

    def __init__(
        self, read_status: Callable[[], Status] = Status, targets_shown: int = TARGETS_SHOWN
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._reasons: set[str] = set(REASONS)
        self._make_counters()
        self._gauges = {
            name: Gauge(f"delay_proxy_{name}", text, registry=self.registry)
            for name, text in GAUGES.items()
        }
        self._gauges["wall_clock_seconds"].set_function(time.time)
        self.show(clock_lead_seconds=math.nan)
        self.transaction_seconds = Histogram(
            "delay_proxy_transaction_seconds",
            "Time from the start of a transaction to the answer to its commit.",
            buckets=TRANSACTION_BOUNDS_S,
            registry=self.registry,
        )
        self.targets = TargetMetrics(targets_shown, LATENESS_BOUNDS_MS, DELAY_BOUNDS_MS)
        retries = RetryMetrics(targets_shown)
        self.intake = Intake(self.targets, retries)
        self.steps = LoopSteps(self.registry)
        self.refused = RefusedTargets()
        status = StatusCollector(read_status, targets_shown)
        for collector in (self.targets, retries, self.refused, status):
            self.registry.register(collector)
        ProcessCollector("delay_proxy", registry=self.registry)
        build = Info("delay_proxy_build", "Version of the proxy.", registry=self.registry)
        build.info({"version": __version__})

    def _make_counters(self) -> None:
        """Make the counters, all at 0, because Prometheus's `increase` ignores a first value."""
        self.deliveries = self._counter("deliveries", "Records delivered to their target.")
        self.transactions = self._counter(
            "transactions",
            TRANSACTIONS,
            "result",
            get_args(TransactionResult),
        )
        self.dead_letters = self._counter(
            "dead_letters", "Records that ended as dead letters, by reason.", "reason", REASONS
        )
        self.outcomes = self._counter(
            "outcomes",
            "Records that ended or were rewritten, by outcome. Deliveries and dead letters are "
            "not counted here.",
            "outcome",
            [outcome for outcome in OUTCOMES if outcome != DEAD_LETTERED],
        )
        self.traced = self._counter(
            "traced_records",
            TRACED_RECORDS,
            "result",
            get_args(TraceResult),
        )
        self.purges = self._counter(
            "purges",
            PURGES,
            "state",
            get_args(PurgeState),
        )
        self.purged_records = self._counter(
            "purged_records", "Records ended by purges. They also count as outcomes `cancelled`."
        )
        self.sessions_lost = self._counter(
            "sessions_lost",
            "Sessions with the broker that a worker dropped. The worker recovers from the broker.",
        )
        self._throttled = self._counter(
            "throttled_seconds",
            "Time for which the broker throttled the proxy for a quota, by direction.",
            "direction",
            get_args(ThrottledDirection),
        )

    def show(self, **values: float) -> None:
        """Set some of the gauges in GAUGES."""
        for name, value in values.items():
            self._gauges[name].set(value)

    def count_deliveries(self, targets: Sequence[str], lateness_ms: Numbers) -> None:
        self.targets.delivered(targets, lateness_ms)
        self.deliveries.inc(len(targets))

    def count_throttled(self, direction: ThrottledDirection, seconds: float) -> None:
        self._throttled.labels(direction).inc(seconds)

    def count_transaction(self, result: TransactionResult, seconds: float) -> None:
        self.transactions.labels(result).inc()
        self.transaction_seconds.observe(seconds)

    def count_dead_letters(self, by_reason: Mapping[str, int]) -> None:
        """Count dead letters. Reasons beyond the limit are counted as `(other)`."""
        for reason, count in by_reason.items():
            if len(self._reasons) < REASONS_SHOWN:
                self._reasons.add(reason)
            self.dead_letters.labels(reason if reason in self._reasons else OTHER).inc(count)

    def count_traced(self, result: TraceResult, records: int) -> None:
        self.traced.labels(result).inc(records)

    def count_lost_session(self) -> None:
        """Count a lost session. The lag is unknown until the next session."""
        self.sessions_lost.inc()
        self.show(due_lag_seconds=math.nan)

    def _counter(
        self, name: str, text: str, label: str | None = None, values: Iterable[str] = ()
    ) -> Counter:
        labels = [] if label is None else [label]
        counter = Counter(f"delay_proxy_{name}", text, labels, registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter
