"""Which floors the links forbid, and for how long."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np

Link: TypeAlias = tuple[int, int, int]
"""(low, high, until_ms): no floor lies in (low, high] before the watermark is beyond `until_ms`."""

FOREVER_MS: Final = 2**63 - 1
MOST_INTERVALS: Final = 256
"""With the same end: about 7 KB in the manifest."""
FINEST_BITS, COARSEST_BITS, SPAN_BITS = 10, 28, 3
"""Ends are rounded up by an eighth of the time until then, from a second to three days."""


class Intervals:
    """Disjoint (low, high] of offsets that no floor may lie in, ascending.

    Those that touch are joined, which forbids the same floors: one that is lowered out of the
    first lands in the second. Beyond MOST_INTERVALS the nearest are joined: that forbids more, and
    a lower floor is always safe."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

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
        if len(self._lows) > MOST_INTERVALS:
            self._join_nearest()

    def lowered(self, floor: int) -> int:
        """The highest floor at or below `floor` that is not forbidden."""
        at = bisect_left(self._highs, floor)
        is_forbidden = at < len(self._lows) and self._lows[at] < floor
        return self._lows[at] if is_forbidden else floor

    def forget(self, floor: int) -> None:
        """Drop what lies below `floor`: no floor goes there again."""
        passed = bisect_left(self._highs, floor)
        del self._lows[:passed], self._highs[:passed]

    def _join_nearest(self) -> None:
        gaps = np.array(self._lows[1:]) - np.array(self._highs[:-1])
        joined = np.zeros(gaps.size, np.bool_)
        joined[np.argsort(gaps, kind="stable")[: MOST_INTERVALS // 8]] = True
        self._lows = np.array(self._lows)[np.concatenate(([True], ~joined))].tolist()
        self._highs = np.array(self._highs)[np.concatenate((~joined, [True]))].tolist()


class Links:
    """Intervals by their end. Links whose ends are rounded to the same are kept together."""

    def __init__(self, links: Iterable[Link] = ()) -> None:
        self._by_end_ms: dict[int, Intervals] = {}
        for link in links:
            self.add(link)

    def __len__(self) -> int:
        return sum(map(len, self._by_end_ms.values()))

    def all(self) -> list[Link]:
        """Each of them, joined as they are."""
        ends = self._by_end_ms.items()
        return [(low, high, end_ms) for end_ms, each in ends for low, high in each.pairs()]

    def add(self, link: Link) -> None:
        """Forbid its floors; the end is taken as it is."""
        low, high, until_ms = link
        self._by_end_ms.setdefault(until_ms, Intervals()).add(low, high)

    def lowered(self, floor: int) -> int:
        """The highest floor at or below `floor` that is not forbidden."""
        every = self._by_end_ms.values()
        while (lower := min((each.lowered(floor) for each in every), default=floor)) < floor:
            floor = lower
        return floor

    def forget(self, floor: int, ended_ms: int) -> None:
        """Drop what lies below `floor`, and what was to count until before `ended_ms`."""
        for end_ms, each in list(self._by_end_ms.items()):
            each.forget(floor)
            if end_ms < ended_ms or not each:
                del self._by_end_ms[end_ms]


def rounded_end_ms(until_ms: int | None, ended_ms: int) -> int:
    """A time at or after `until_ms` that many links share, with the watermark at `ended_ms`."""
    if until_ms is None:
        return FOREVER_MS
    bits = (until_ms - ended_ms).bit_length() - SPAN_BITS
    width_ms = 1 << min(max(bits, FINEST_BITS), COARSEST_BITS)
    return -(-until_ms // width_ms) * width_ms
