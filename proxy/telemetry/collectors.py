"""Metrics by target and retry group, in a bounded number of series."""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.protocol.body import IngressPartition, Message
from proxy.protocol.request_reader import AskedFor, ParsedBatch

log = structlog.get_logger(__name__)

OTHER: Final = "(other)"
"""The label of all further targets, groups or reasons. No topic can have this name."""
LONGEST_NAME: Final = 249


class BoundedNames:
    """Numbers for the first `most` names. All later names share one further number."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._numbers) == self.most or name == OTHER or len(name) > LONGEST_NAME:
            return self.most
        return self._numbers.setdefault(name, len(self._numbers))

    def by_number(self) -> dict[int, str]:
        return {number: name for name, number in self._numbers.items()} | {self.most: OTHER}


Numbers: TypeAlias = npt.NDArray[np.int64]

FEW: Final = 8
"""Up to this many values are counted one by one, which is faster than an array."""


class HistogramBySeries:
    """Histograms of milliseconds, with inclusive bounds and a last bucket for larger values. Not
    thread-safe."""

    def __init__(self, series: int, bounds_ms: Sequence[int]) -> None:
        self._bounds, self._bounds_ms = list(bounds_ms), np.asarray(bounds_ms, np.int64)
        self._names = [*(f"{bound / 1000:g}" for bound in bounds_ms), "+Inf"]
        self._buckets = np.zeros((series, len(self._names)), np.int64)
        self._sums_ms = np.zeros(series, np.int64)

    def add(self, series: Numbers | int, values_ms: Sequence[int] | Numbers) -> None:
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
        return [int(count) for count in self._buckets.sum(axis=1)]

    def cumulative(self, series: int | None = None) -> tuple[list[tuple[str, float]], float]:
        """Return cumulative buckets and the sum in seconds, of one series or of all."""
        buckets = self._buckets.sum(axis=0) if series is None else self._buckets[series]
        sum_ms = self._sums_ms.sum() if series is None else self._sums_ms[series]
        counts = map(float, np.cumsum(buckets).tolist())
        return list(zip(self._names, counts, strict=True)), int(sum_ms) / 1000


DELIVERED: Final = "delivered"


class TargetMetrics(Collector):
    """Ends of records by target. The first `most` targets have series of their own."""

    def __init__(
        self, most: int, lateness_bounds_ms: Sequence[int], delay_bounds_ms: Sequence[int]
    ) -> None:
        self._names = BoundedNames(most)
        self._lateness = HistogramBySeries(most + 1, lateness_bounds_ms)
        self._delays = HistogramBySeries(most + 1, delay_bounds_ms)
        self._ends: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()

    def meet(self, targets: Iterable[str]) -> None:
        """Begin series at 0, because Prometheus's `increase` ignores a series' first value."""
        with self._lock:
            for target in targets:
                self._names.number(target)

    def ingested(self, targets: Sequence[str], delays_ms: Sequence[int]) -> None:
        """Count records by requested delay. A negative delay counts as 0."""
        if min(delays_ms) < 0:
            delays_ms = [max(0, delay_ms) for delay_ms in delays_ms]
        self._add(self._delays, targets, delays_ms)

    def delivered(self, targets: Sequence[str], lateness_ms: Numbers) -> None:
        self._add(self._lateness, targets, lateness_ms)

    def ended(self, ends: Iterable[tuple[str | None, str]]) -> None:
        """Count rewrites, and ends other than deliveries. Ignore records without a target."""
        for (target, what), count in Counter(ends).items():
            if target is not None:
                with self._lock:
                    self._ends[self._names.number(target), what] += count

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            families = [*self._histograms(), self._ingested(), self._ended()]
        yield from families

    def _add(
        self,
        histogram: HistogramBySeries,
        targets: Sequence[str],
        values_ms: Sequence[int] | Numbers,
    ) -> None:
        with self._lock:
            known = {target: self._names.number(target) for target in set(targets)}
            if len(known) == 1:
                histogram.add(known[targets[0]], values_ms)
            else:
                numbers = np.fromiter(map(known.__getitem__, targets), np.int64, len(targets))
                histogram.add(numbers, values_ms)

    def _histograms(self) -> Iterator[Metric]:
        of_all = HistogramMetricFamily(
            "delay_proxy_lateness_seconds",
            "Delivery time minus due time. Counted when the transaction is committed.",
        )
        of_all.add_metric([], *self._lateness.cumulative())
        yield of_all
        lateness = "Delivery time minus due time, by target. Counted at the commit."
        delays = "Due time minus timestamp of a record, by target. Counted when the record is read."
        for name, text, histogram in (
            ("delay_proxy_target_lateness_seconds", lateness, self._lateness),
            ("delay_proxy_target_asked_delay_seconds", delays, self._delays),
        ):
            family = HistogramMetricFamily(name, text, labels=["target"])
            for number, target in self._names.by_number().items():
                family.add_metric([target], *histogram.cumulative(number))
            yield family

    def _ingested(self) -> Metric:
        family = CounterMetricFamily(
            "delay_proxy_target_ingested_records",
            "Producers' records read, by target. A process counts each record once.",
            labels=["target"],
        )
        counts = self._delays.counts()
        for number, target in self._names.by_number().items():
            family.add_metric([target], counts[number])
        return family

    def _ended(self) -> Metric:
        family = CounterMetricFamily(
            "delay_proxy_target_records",
            "Records that were delivered, ended or were rewritten, by target and outcome.",
            labels=["target", "end"],
        )
        targets, delivered = self._names.by_number(), self._lateness.counts()
        for number, target in targets.items():
            family.add_metric([target, DELIVERED], delivered[number])
        for (number, what), count in sorted(self._ends.items()):
            family.add_metric([targets[number], what], count)
        return family


ATTEMPTS_SHOWN: Final = 16
"""The default of `retry.max_attempts`."""
BEYOND: Final = f"{ATTEMPTS_SHOWN + 1}+"


class RetryMetrics(Collector):
    """Failures by consumer group. The first `most` groups have series of their own."""

    def __init__(self, most: int) -> None:
        self._names = BoundedNames(most)
        self._counts: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def ingested(self, retries: Iterable[tuple[str, int]]) -> None:
        """Count records that consumers sent back, by group and failures."""
        for (group, attempt), count in Counter(retries).items():
            with self._lock:
                place = self._names.number(group), min(attempt, ATTEMPTS_SHOWN + 1)
                self._counts[place] += count

    def collect(self) -> Iterator[Metric]:
        """Yield all attempts of a known group, even at 0. `TargetMetrics.meet` says why."""
        family = CounterMetricFamily(
            "delay_proxy_retry_attempts",
            "Records sent back by consumers, by group and number of failures. The first groups "
            f"have names (setting `admin.targets_shown`). Others are counted as `{OTHER}`.",
            labels=["group", "attempt"],
        )
        with self._lock:
            groups, counts = self._names.by_number(), dict(self._counts)
        for number, group in groups.items():
            for attempt in range(1, ATTEMPTS_SHOWN + 2):
                label = BEYOND if attempt > ATTEMPTS_SHOWN else str(attempt)
                family.add_metric([group, label], counts.get((number, attempt), 0))
        yield family


LONG_PAST_MS: Final = 366 * 86_400_000
WARN_EVERY_S: Final = 60.0


class Intake:
    """Counts each read record once, although a new session reads uncommitted records again."""

    def __init__(self, targets: TargetMetrics, retries: RetryMetrics) -> None:
        self._targets, self._retries = targets, retries
        self._upto: dict[IngressPartition, int] = {}
        self._warned_s = -WARN_EVERY_S

    def count(
        self, ingress: IngressPartition, messages: Sequence[Message], batch: ParsedBatch
    ) -> None:
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
        """Warn of a record whose due is more than a year before it was written."""
        first_ms = min(asked.delays_ms)
        now_s = time.monotonic()
        if first_ms < -LONG_PAST_MS and now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            log.warning(
                "due more than a year before the record was written, so delivered at once: "
                "timer-deliver-at takes milliseconds, not seconds",
                target=asked.targets[asked.delays_ms.index(first_ms)],
                remedy="correct the producer; `max_past: 366d` makes dead letters of such records",
            )
