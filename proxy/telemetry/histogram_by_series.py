"""A histogram for each of several series, counted by the batch."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

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
