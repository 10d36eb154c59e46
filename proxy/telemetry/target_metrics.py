"""What became of the records of each target: for the team that owns it, and its alerts."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

OTHER: Final = "(other)"
"""No topic name has parentheses, so no target is called so."""
DELIVERED: Final = "delivered"

Numbers: TypeAlias = npt.NDArray[np.int64]


class TargetMetrics(Collector):
    """Counts by target: the first `most` that are met have a series each, all others share one, so
    that no series ever goes from one to the other.

    `bounds_ms`: of the histogram's buckets, rising, each inclusive; one more takes the rest.
    """

    def __init__(self, most: int, bounds_ms: Sequence[int]) -> None:
        self._most = most
        self._bounds_ms: Numbers = np.asarray(bounds_ms, np.int64)
        self._names = [*(f"{bound / 1000:g}" for bound in bounds_ms), "+Inf"]
        self._numbers: dict[str, int] = {}
        self._buckets = np.zeros((most + 1, len(self._names)), np.int64)
        self._sums_ms = np.zeros(most + 1, np.int64)
        self._ends: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()

    def meet(self, targets: Iterable[str]) -> None:
        """Something waits for these: a series that begins with its first count hides that count
        from `increase`."""
        with self._lock:
            for target in targets:
                self._number(target)

    def delivered(self, targets: Sequence[str], lateness_ms: Numbers) -> None:
        """Records were delivered there, each so late."""
        found = set(targets)
        self.meet(found)
        known = {target: self._numbers.get(target, self._most) for target in found}
        if len(found) == 1:
            numbers = np.full(len(targets), known[targets[0]])
        else:
            numbers = np.fromiter(map(known.__getitem__, targets), np.int64, len(targets))
        width = len(self._names)
        places = numbers * width + np.searchsorted(self._bounds_ms, lateness_ms, side="left")
        counts = np.bincount(places, minlength=self._buckets.size).reshape(self._buckets.shape)
        sums_ms = np.bincount(numbers, lateness_ms, len(self._sums_ms)).astype(np.int64)
        with self._lock:
            self._buckets += counts
            self._sums_ms += sums_ms

    def ended(self, ends: Iterable[tuple[str | None, str]]) -> None:
        """Records for these targets ended, or went on, otherwise; without a target none is
        counted."""
        for (target, what), count in Counter(ends).items():
            if target is not None:
                with self._lock:
                    self._ends[self._number(target), what] += count

    def collect(self) -> Iterator[Metric]:
        """How late records were delivered, in all and by target; and how records ended."""
        with self._lock:
            names = {number: name for name, number in self._numbers.items()} | {self._most: OTHER}
            buckets, sums_ms, ends = self._buckets.copy(), self._sums_ms.copy(), dict(self._ends)
        yield self._lateness_of_all(buckets.sum(axis=0), int(sums_ms.sum()))
        yield self._lateness(names, buckets, sums_ms)
        yield self._counts(names, buckets, ends)

    def _number(self, target: str) -> int:
        """With the lock held."""
        if target not in self._numbers and len(self._numbers) < self._most:
            self._numbers[target] = len(self._numbers)
        return self._numbers.get(target, self._most)

    def _lateness_of_all(self, counts: Numbers, sum_ms: int) -> Metric:
        family = HistogramMetricFamily(
            "delay_proxy_lateness_seconds",
            "Delivery minus due, per record, when its transaction was committed.",
        )
        family.add_metric([], self._cumulative(counts), sum_ms / 1000)
        return family

    def _lateness(self, names: Mapping[int, str], buckets: Numbers, sums_ms: Numbers) -> Metric:
        family = HistogramMetricFamily(
            "delay_proxy_target_lateness_seconds",
            "Delivery minus due, by target, when its transaction was committed.",
            labels=["target"],
        )
        for number, name in names.items():
            pairs = self._cumulative(buckets[number])
            family.add_metric([name], pairs, int(sums_ms[number]) / 1000)
        return family

    def _cumulative(self, counts: Numbers) -> list[tuple[str, float]]:
        return list(zip(self._names, map(float, np.cumsum(counts).tolist()), strict=True))

    def _counts(
        self, names: Mapping[int, str], buckets: Numbers, ends: Mapping[tuple[int, str], int]
    ) -> Metric:
        family = CounterMetricFamily(
            "delay_proxy_target_records",
            "Records by target and by how they ended, or went on (docs/guide.md#outcomes).",
            labels=["target", "end"],
        )
        for number, name in names.items():
            family.add_metric([name, DELIVERED], int(buckets[number].sum()))
        for (number, what), count in sorted(ends.items()):
            family.add_metric([names[number], what], count)
        return family
