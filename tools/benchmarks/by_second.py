"""Sent, due and delivered records of a load in each second, with their lateness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.benchmarks.reader import Arrivals
from tools.benchmarks.verdict import Lateness, lateness

Floats = npt.NDArray[np.float64]

SHORT_MS: Final = 1_000
"""Delays below this are called short. A record with a short delay is late if the proxy reads the
ingress late. Most records with longer delays are still read before their due."""


@dataclass(frozen=True, slots=True)
class Second:
    """One second of a run. `at_s` is its number after the start. `short` is the lateness of records
    with short delays that were due in this second. `long` is the lateness of the other records that
    were due in it. `delivered` counts the records that arrived in it. `anonymous_mb` is the proxy's
    memory."""

    at_s: int
    sent: int
    due: int
    short: Lateness
    long: Lateness
    delivered: int
    delivered_p99_ms: float
    anonymous_mb: float

    @property
    def worst_p99_ms(self) -> float:
        """Return the larger p99 of short and long delays. NaN means that nothing was due."""
        return float(np.fmax(self.short.p99_ms, self.long.p99_ms))


@dataclass(frozen=True, slots=True)
class Course:
    """Arrivals, send times by record number (epoch ms), and memory samples (epoch ms, bytes)."""

    arrivals: Arrivals
    sent_ms: Floats
    memory: Sequence[tuple[float, int]]

    def by_delay(self) -> tuple[Arrivals, Arrivals]:
        arrivals = self.arrivals
        known = np.clip(arrivals.sequence, 0, len(self.sent_ms) - 1)
        is_short = arrivals.due_ms - self.sent_ms[known] < SHORT_MS
        return _of(arrivals, is_short), _of(arrivals, ~is_short)


def by_second(course: Course, start_ms: float) -> list[Second]:
    arrivals, (short, long) = course.arrivals, course.by_delay()
    first_s = int((course.sent_ms.min() - start_ms) // 1000)
    last_s = int((arrivals.received_ms.max(initial=course.sent_ms.max()) - start_ms) // 1000)
    edges_ms = start_ms + 1000.0 * np.arange(first_s, last_s + 2)
    sent, due, delivered = (
        np.histogram(moments_ms, edges_ms)[0].tolist()
        for moments_ms in (course.sent_ms, arrivals.due_ms, arrivals.received_ms)
    )
    at_ms, sizes_bytes = np.array(course.memory, np.float64).reshape(-1, 2).T
    memory_mb = (
        np.interp(edges_ms[1:], at_ms, sizes_bytes / 1e6) if len(at_ms) else edges_ms[1:] * 0
    )
    return [
        Second(
            first_s + number,
            sent[number],
            due[number],
            lateness(short, from_ms, from_ms + 1000),
            lateness(long, from_ms, from_ms + 1000),
            delivered[number],
            _p99_ms(arrivals, from_ms),
            anonymous_mb=round(float(memory_mb[number]), 1),
        )
        for number, from_ms in enumerate(edges_ms[:-1].tolist())
    ]


def short_against_long(course: Course, due_from_ms: float, due_until_ms: float) -> float:
    """Return the mean lateness of short delays divided by the mean lateness of long delays."""
    means_ms = []
    for arrivals in course.by_delay():
        chosen = (arrivals.due_ms >= due_from_ms) & (arrivals.due_ms < due_until_ms)
        late_ms = arrivals.lateness_ms[chosen]
        means_ms.append(float(late_ms.mean()) if len(late_ms) else float("nan"))
    return round(means_ms[0] / means_ms[1], 2)


def recovered_s(arrivals: Arrivals, since_ms: float, limit_ms: float) -> float:
    """Return the whole seconds until lateness stays within `limit_ms`. In each second, one record
    in a hundred may be later. Return NaN if `since_ms` is NaN."""
    if np.isnan(since_ms):
        return np.nan
    seconds = ((arrivals.received_ms - since_ms) // 1000).astype(np.int64)
    late = [
        second
        for second in np.unique(seconds[seconds >= 0])
        if np.percentile(arrivals.lateness_ms[seconds == second], 99) > limit_ms
    ]
    return int(max(late, default=-1)) + 1


def _p99_ms(arrivals: Arrivals, from_ms: float) -> float:
    came = (arrivals.received_ms >= from_ms) & (arrivals.received_ms < from_ms + 1000)
    return round(float(np.percentile(arrivals.lateness_ms[came], 99)), 1) if came.any() else np.nan


def _of(arrivals: Arrivals, chosen: npt.NDArray[np.bool_]) -> Arrivals:
    return Arrivals(
        arrivals.sequence[chosen], arrivals.due_ms[chosen], arrivals.received_ms[chosen], cpu_s=0
    )
