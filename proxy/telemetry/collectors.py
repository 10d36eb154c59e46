"""Metrics with bounded labels: targets, retry groups, refusals, intake."""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.clock import wall_clock_ms
from proxy.protocol.body import IngressPartition, Message
from proxy.protocol.parsed import AskedFor, ParsedBatch

log = structlog.get_logger(__name__)


# Names that come from outside, as labels of a bounded number of series.

OTHER: Final = "(other)"
"""No topic's name has parentheses, so no target is called so."""
LONGEST_NAME: Final = 249
"""As long as a topic's name may be."""


class BoundedNames:
    """Numbers the first `most` names that are met; all others share the number `most`, so that no
    series ever goes from one to the other."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of its series."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._numbers) == self.most or name == OTHER or len(name) > LONGEST_NAME:
            return self.most
        return self._numbers.setdefault(name, len(self._numbers))

    def by_number(self) -> dict[int, str]:
        """The names that have a series, and that of all others."""
        return {number: name for name, number in self._numbers.items()} | {self.most: OTHER}

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """The number of each."""
        return {name: self.number(name) for name in names}


# A histogram for each of several series, counted by the batch.

Numbers: TypeAlias = npt.NDArray[np.int64]

FEW: Final = 8
"""Up to so many values are counted one by one: for them an array takes longer."""


class HistogramBySeries:
    """Values in milliseconds. `bounds_ms`: of the buckets, rising, each inclusive; one more takes
    the rest. Not for several threads at once."""

    def __init__(self, series: int, bounds_ms: Sequence[int]) -> None:
        self._bounds, self._bounds_ms = list(bounds_ms), np.asarray(bounds_ms, np.int64)
        self._names = [*(f"{bound / 1000:g}" for bound in bounds_ms), "+Inf"]
        self._buckets = np.zeros((series, len(self._names)), np.int64)
        self._sums_ms = np.zeros(series, np.int64)

    def add(self, series: Numbers | int, values_ms: Sequence[int] | Numbers) -> None:
        """Count each value in its series, or all in one."""
        if isinstance(series, int) and len(values_ms) <= FEW:
            for value_ms in values_ms:
                self._buckets[series, bisect_left(self._bounds, value_ms)] += 1
                self._sums_ms[series] += value_ms
            return
        values_ms = np.asarray(values_ms, np.int64)
        buckets = np.searchsorted(self._bounds_ms, values_ms, side="left")
        if isinstance(series, int):
            self._buckets[series] += np.bincount(buckets, minlength=len(self._names))
            self._sums_ms[series] += values_ms.sum()
            return
        places = series * len(self._names) + buckets
        counts = np.bincount(places, minlength=self._buckets.size)
        self._buckets += counts.reshape(self._buckets.shape)
        self._sums_ms += np.bincount(series, values_ms, len(self._sums_ms)).astype(np.int64)

    def counts(self) -> list[int]:
        """How many values each series has."""
        return [int(count) for count in self._buckets.sum(axis=1)]

    def cumulative(self, series: int | None = None) -> tuple[list[tuple[str, float]], float]:
        """Buckets and sum in seconds, of one series or of all, as Prometheus takes them."""
        buckets = self._buckets.sum(axis=0) if series is None else self._buckets[series]
        sum_ms = self._sums_ms.sum() if series is None else self._sums_ms[series]
        counts = map(float, np.cumsum(buckets).tolist())
        return list(zip(self._names, counts, strict=True)), int(sum_ms) / 1000


# What became of the records of each target: for the team that owns it, and its alerts.

DELIVERED: Final = "delivered"


class TargetMetrics(Collector):
    """Counts by target: the first `most` that are met have a series each, all others share one.

    `lateness_bounds_ms`, `delay_bounds_ms`: of the histograms' buckets.
    """

    def __init__(
        self, most: int, lateness_bounds_ms: Sequence[int], delay_bounds_ms: Sequence[int]
    ) -> None:
        self._names = BoundedNames(most)
        self._lateness = HistogramBySeries(most + 1, lateness_bounds_ms)
        self._delays = HistogramBySeries(most + 1, delay_bounds_ms)
        self._ends: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()

    def meet(self, targets: Iterable[str]) -> None:
        """Something waits for these: a series that begins with its first count hides that count
        from `increase`."""
        with self._lock:
            self._names.numbers(targets)

    def ingested(self, targets: Sequence[str], delays_ms: Sequence[int]) -> None:
        """Records for these were read, each asking for such a delay; below 0 counts as 0."""
        if min(delays_ms) < 0:
            delays_ms = [max(0, delay_ms) for delay_ms in delays_ms]
        self._add(self._delays, targets, delays_ms)

    def delivered(self, targets: Sequence[str], lateness_ms: Numbers) -> None:
        """Records were delivered there, each so late."""
        self._add(self._lateness, targets, lateness_ms)

    def ended(self, ends: Iterable[tuple[str | None, str]]) -> None:
        """Records for these targets ended, or went on, otherwise; without a target none is
        counted."""
        for (target, what), count in Counter(ends).items():
            if target is not None:
                with self._lock:
                    self._ends[self._names.number(target), what] += count

    def collect(self) -> Iterator[Metric]:
        """What was read and how late it was delivered, in all and by target; how records ended."""
        with self._lock:
            families = [
                self._lateness_of_all(),
                self._histogram(
                    "lateness",
                    "Delivery minus due, by target, when its transaction was committed.",
                    self._lateness,
                ),
                self._histogram(
                    "asked_delay",
                    "Due minus the record's timestamp, by target, as records are read.",
                    self._delays,
                ),
                self._ingested(),
                self._ended(),
            ]
        yield from families

    def _add(
        self,
        histogram: HistogramBySeries,
        targets: Sequence[str],
        values_ms: Sequence[int] | Numbers,
    ) -> None:
        with self._lock:
            known = self._names.numbers(set(targets))
            if len(known) == 1:
                histogram.add(known[targets[0]], values_ms)
            else:
                numbers = np.fromiter(map(known.__getitem__, targets), np.int64, len(targets))
                histogram.add(numbers, values_ms)

    def _lateness_of_all(self) -> Metric:
        family = HistogramMetricFamily(
            "delay_proxy_lateness_seconds",
            "Delivery minus due, per record, when its transaction was committed.",
        )
        family.add_metric([], *self._lateness.cumulative())
        return family

    def _histogram(self, name: str, text: str, histogram: HistogramBySeries) -> Metric:
        family = HistogramMetricFamily(
            f"delay_proxy_target_{name}_seconds", text, labels=["target"]
        )
        for number, target in self._names.by_number().items():
            family.add_metric([target], *histogram.cumulative(number))
        return family

    def _ingested(self) -> Metric:
        family = CounterMetricFamily(
            "delay_proxy_target_ingested_records",
            "Producers' records for the target that were read, each once in a process.",
            labels=["target"],
        )
        counts = self._delays.counts()
        for number, target in self._names.by_number().items():
            family.add_metric([target], counts[number])
        return family

    def _ended(self) -> Metric:
        family = CounterMetricFamily(
            "delay_proxy_target_records",
            "Records by target and by how they ended, or went on (docs/guide.md#outcomes).",
            labels=["target", "end"],
        )
        targets, delivered = self._names.by_number(), self._lateness.counts()
        for number, target in targets.items():
            family.add_metric([target, DELIVERED], delivered[number])
        for (number, what), count in sorted(self._ends.items()):
            family.add_metric([targets[number], what], count)
        return family


# How often the records of each consumer group have failed.

ATTEMPTS_SHOWN: Final = 16
"""As many as the proxy makes unless it is told otherwise."""
BEYOND: Final = f"{ATTEMPTS_SHOWN + 1}+"


class RetryMetrics(Collector):
    """Counts retries by group and attempt: the first `most` groups that are met have series of
    their own, all others share theirs."""

    def __init__(self, most: int) -> None:
        self._names = BoundedNames(most)
        self._counts: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def ingested(self, retries: Iterable[tuple[str, int]]) -> None:
        """Consumers of these groups have sent records back, each after so many failures."""
        for (group, attempt), count in Counter(retries).items():
            with self._lock:
                place = self._names.number(group), min(attempt, ATTEMPTS_SHOWN + 1)
                self._counts[place] += count

    def collect(self) -> Iterator[Metric]:
        """Each attempt of each group, from the group's first on: a series that begins with its
        first count hides that count from `increase`."""
        family = CounterMetricFamily(
            "delay_proxy_retry_attempts",
            "Records that a consumer has sent back, by its group and by how often it has failed.",
            labels=["group", "attempt"],
        )
        with self._lock:
            groups, counts = self._names.by_number(), dict(self._counts)
        for number, group in groups.items():
            for attempt in range(1, ATTEMPTS_SHOWN + 2):
                label = BEYOND if attempt > ATTEMPTS_SHOWN else str(attempt)
                family.add_metric([group, label], counts.get((number, attempt), 0))
        yield family


# Counts what is read, each record once in this process.

LONG_PAST_MS: Final = 366 * 86_400_000
WARN_EVERY_S: Final = 60.0


class Intake:
    """Outlives sessions: what a session had read, and not committed, the next one reads again."""

    def __init__(self, targets: TargetMetrics, retries: RetryMetrics) -> None:
        self._targets, self._retries = targets, retries
        self._upto: dict[IngressPartition, int] = {}
        self._warned_s = -WARN_EVERY_S

    def count(
        self, ingress: IngressPartition, messages: Sequence[Message], batch: ParsedBatch
    ) -> None:
        """The first of `batch`, as many as there are `messages`, were read."""
        upto, first = self._upto.get(ingress, 0), 0
        if messages[0].offset() < upto:
            first = bisect_left(messages, upto, key=lambda message: message.offset())
        if first == len(messages):
            return
        self._upto[ingress] = messages[-1].offset() + 1
        asked = batch.asked(first, len(messages))
        if asked.targets:
            self._warn_of_past(asked)
            self._targets.ingested(asked.targets, asked.delays_ms)
        if asked.retries:
            self._retries.ingested(asked.retries)

    def _warn_of_past(self, asked: AskedFor) -> None:
        """Name a target whose records were due more than a year before they were written."""
        first_ms = min(asked.delays_ms)
        now_s = time.monotonic()
        if first_ms < -LONG_PAST_MS and now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            log.warning(
                "due more than a year before the record was written, so delivered at once: "
                "timer-deliver-at takes milliseconds, not seconds",
                target=asked.targets[asked.delays_ms.index(first_ms)],
                remedy="mend the producer; `max_past: 366d` makes dead letters of such records",
            )


# Targets that do not take their records, and how long the records between two attempts wait.

MINUTE_MS: Final = 60_000
TOLD_EVERY_MS: Final = MINUTE_MS
MOST_TARGETS: Final = 200
"""Pairs of target and reason. Others share one entry a reason."""


class RefusedTarget(NamedTuple):
    """A target that does not take records, and why.

    records: so many wait for their next attempt. oldest_due_ms: the earliest due among them.
    """

    target: str
    reason: str
    detail: str
    records: int
    oldest_due_ms: int


class _Waiting:
    """Records of one target between two attempts: number and earliest due, by the minute of the
    next attempt."""

    def __init__(self) -> None:
        self.detail = ""
        self.told_ms = 0
        self.by_minute: dict[int, tuple[int, int]] = {}

    def add(self, due_ms: int, again_ms: int) -> None:
        minute = again_ms // MINUTE_MS
        records, oldest_ms = self.by_minute.get(minute, (0, due_ms))
        self.by_minute[minute] = records + 1, min(oldest_ms, due_ms)

    def forget(self, now_ms: int) -> None:
        """Records whose attempt has come were delivered, or were added again."""
        past = [minute for minute in self.by_minute if (minute + 1) * MINUTE_MS <= now_ms]
        for minute in past:
            del self.by_minute[minute]


class RefusedTargets(Collector):
    """Counts what committed transactions put off, for one process. A new one begins empty."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._lock = threading.Lock()

    def put_off(self, target: str, why: str, due_ms: int, again_ms: int) -> None:
        """A record for this target is tried again later. why: the reason's code, and a sentence."""
        code, _, detail = why.partition(": ")
        with self._lock:
            waiting = self._of(target, code)
            waiting.detail = detail
            waiting.add(due_ms, again_ms)
            now_ms = self._now_ms()
            is_told = now_ms - waiting.told_ms < TOLD_EVERY_MS
            if not is_told:
                waiting.told_ms = now_ms
        if not is_told:
            log.warning(
                "a target does not take its records: they are tried again later",
                target=target,
                reason=code,
                detail=detail,
                next_attempt_in_s=max(0, again_ms - now_ms) // 1000,
            )

    def now(self) -> tuple[RefusedTarget, ...]:
        """The targets for which records wait, those with the oldest first."""
        with self._lock:
            self._forget()
            found = [
                RefusedTarget(
                    target,
                    code,
                    waiting.detail,
                    sum(records for records, _ in waiting.by_minute.values()),
                    min(oldest_ms for _, oldest_ms in waiting.by_minute.values()),
                )
                for (target, code), waiting in self._waiting.items()
                if waiting.by_minute
            ]
        return tuple(sorted(found, key=lambda one: one.oldest_due_ms))

    def collect(self) -> Iterator[Metric]:
        """How long the oldest record has been due, by target and reason; never without a series."""
        family = GaugeMetricFamily(
            "delay_proxy_target_refused_seconds",
            "How long the oldest record that its target does not take has been due.",
            labels=["target", "reason"],
        )
        now_ms = self._now_ms()
        found = {(one.target, one.reason): one.oldest_due_ms for one in self.now()}
        for (target, reason), due_ms in {(OTHER, "target-unknown"): now_ms, **found}.items():
            family.add_metric([target, reason], max(0, now_ms - due_ms) / 1000)
        yield family

    def _of(self, target: str, code: str) -> _Waiting:
        place = target, code
        if place not in self._waiting:
            if len(self._waiting) >= MOST_TARGETS:
                self._forget()
            if len(self._waiting) >= MOST_TARGETS:
                place = OTHER, code
        return self._waiting.setdefault(place, _Waiting())

    def _forget(self) -> None:
        now_ms = self._now_ms()
        for place, waiting in list(self._waiting.items()):
            waiting.forget(now_ms)
            if not waiting.by_minute and now_ms - waiting.told_ms >= TOLD_EVERY_MS:
                del self._waiting[place]
