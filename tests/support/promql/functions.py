"""PromQL's range functions, and its histogram quantile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

Points = Sequence[tuple[float, float]]
OverRange = Callable[[Points, float, float], float | None]
"""(points, begin and end of the range) -> value, or None."""


def increase(points: Points, begin_s: float, end_s: float) -> float | None:
    """Return the rise of a counter without restarts, extrapolated to the whole range. Prometheus
    extrapolates at most half an interval beyond the series' ends, and not below zero."""
    if len(points) < 2:
        return None
    (first_s, first), (last_s, last) = points[0], points[-1]
    risen = last - first
    risen += sum(before for (_, before), (_, after) in _pairs(points) if after < before)
    spanned_s = last_s - first_s
    apart_s = spanned_s / (len(points) - 1)
    ahead_s, behind_s = first_s - begin_s, end_s - last_s
    if risen > 0 and first >= 0:
        ahead_s = min(ahead_s, spanned_s * first / risen)
    ahead_s = ahead_s if ahead_s < 1.1 * apart_s else apart_s / 2
    behind_s = behind_s if behind_s < 1.1 * apart_s else apart_s / 2
    return risen * (spanned_s + ahead_s + behind_s) / spanned_s


def rate(points: Points, begin_s: float, end_s: float) -> float | None:
    risen = increase(points, begin_s, end_s)
    return None if risen is None else risen / (end_s - begin_s)


def changes(points: Points, _begin_s: float, _end_s: float) -> float:
    return float(sum(before != after for (_, before), (_, after) in _pairs(points)))


def last_over_time(points: Points, _begin_s: float, _end_s: float) -> float:
    return points[-1][1]


def max_over_time(points: Points, _begin_s: float, _end_s: float) -> float:
    return max(value for _, value in points)


OVER_RANGE: Mapping[str, OverRange] = {
    "changes": changes,
    "increase": increase,
    "last_over_time": last_over_time,
    "max_over_time": max_over_time,
    "rate": rate,
}


def quantile_of(quantile: float, buckets: Mapping[float, float]) -> float:
    """Return a quantile of a cumulative histogram by upper bound, linear within a bucket."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]]
    if total == 0 or len(bounds) < 2:
        return math.nan
    rank = quantile * total
    number = next(n for n, bound in enumerate(bounds) if buckets[bound] >= rank)
    if number == len(bounds) - 1:
        return bounds[-2]
    below = buckets[bounds[number - 1]] if number else 0.0
    start = bounds[number - 1] if number else 0.0
    return start + (bounds[number] - start) * (rank - below) / (buckets[bounds[number]] - below)


def _pairs(points: Points) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return list(pairwise(points))
