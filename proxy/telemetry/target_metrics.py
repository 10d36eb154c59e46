"""What became of the records of each target: for the team that owns it, and its alerts."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.telemetry.bounded_names import BoundedNames
from proxy.telemetry.histogram_by_series import HistogramBySeries, Numbers

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
