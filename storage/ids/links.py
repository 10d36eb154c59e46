"""Which floors the links forbid: disjoint stretches of offsets, few of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

MOST_LINKS = 4096
"""About 100 KB in the manifest."""


class Links:
    """Stretches (low, high] that no floor may lie in.

    Stretches that touch are joined, which forbids the same floors: one that is lowered out of the
    first lands in the second. Beyond MOST_LINKS the nearest are joined: that forbids more, and a
    lower floor is always safe."""

    def __init__(self, links: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in links:
            self.add(low, high)

    def __len__(self) -> int:
        return len(self._lows)

    def pairs(self) -> list[tuple[int, int]]:
        """All (low, high), ascending."""
        return list(zip(self._lows, self._highs, strict=True))

    def add(self, low: int, high: int) -> None:
        """Forbid floors in (low, high]."""
        if low >= high:
            return
        first, end = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if first < end:
            low, high = min(low, self._lows[first]), max(high, self._highs[end - 1])
        self._lows[first:end], self._highs[first:end] = [low], [high]
        if len(self._lows) > MOST_LINKS:
            self._join_nearest()

    def lowered(self, floor: int) -> int:
        """The highest floor at or below `floor` that is not forbidden."""
        at = bisect_left(self._highs, floor)
        is_forbidden = at < len(self._lows) and self._lows[at] < floor
        return self._lows[at] if is_forbidden else floor

    def forget(self, floor: int) -> None:
        """Drop the stretches below `floor`: no floor goes there again."""
        passed = bisect_left(self._highs, floor)
        del self._lows[:passed], self._highs[:passed]

    def _join_nearest(self) -> None:
        gaps = np.array(self._lows[1:]) - np.array(self._highs[:-1])
        joined = np.zeros(gaps.size, np.bool_)
        joined[np.argsort(gaps, kind="stable")[: MOST_LINKS // 8]] = True
        self._lows = np.array(self._lows)[np.concatenate(([True], ~joined))].tolist()
        self._highs = np.array(self._highs)[np.concatenate((~joined, [True]))].tolist()
