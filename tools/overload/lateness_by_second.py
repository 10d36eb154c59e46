"""Lateness by second, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

STEP: Final = 1.05
"""Each bin's upper limit is this multiple of its lower limit. So percentiles are at most 5 % too
high."""
BINS: Final = 380
"""Number of bins. The last bin begins at 1.05 ** 379 ms, which is 30 hours."""

Histogram = npt.NDArray[np.int64]


class Late(NamedTuple):
    """Lateness of `records` records. The maximum is exact. The percentiles are at most 5 % too
    high."""

    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class LatenessBySecond:
    def __init__(self) -> None:
        self._histograms: dict[int, Histogram] = {}
        self._longest_ms: dict[int, float] = {}

    def note(self, received_ms: float, late_ms: npt.NDArray[np.float64]) -> None:
        if not len(late_ms):
            return
        second = int(received_ms // 1000)
        logs = np.log(np.maximum(late_ms, 1.0)) / np.log(STEP)
        bins = np.minimum(np.ceil(logs).astype(np.int64), BINS - 1)
        found = np.bincount(bins, minlength=BINS)
        self._histograms[second] = self._histograms.get(second, 0) + found
        self._longest_ms[second] = max(self._longest_ms.get(second, 0.0), float(late_ms.max()))

    def by_second(self) -> Iterator[tuple[int, Late]]:
        for second in sorted(self._histograms):
            yield second, _late(self._histograms[second], self._longest_ms[second])

    def whole(self) -> Late:
        if not self._histograms:
            return Late(0, 0.0, 0.0, 0.0)
        return _late(sum(self._histograms.values()), max(self._longest_ms.values()))  # type: ignore[arg-type]


def _late(histogram: Histogram, longest_ms: float) -> Late:
    ranks = np.cumsum(histogram)
    bins = [int(np.searchsorted(ranks, share * ranks[-1])) for share in (0.5, 0.99)]
    p50_ms, p99_ms = (min(round(STEP**one, 1), round(longest_ms, 1)) for one in bins)
    return Late(int(ranks[-1]), p50_ms, p99_ms, round(longest_ms, 1))
