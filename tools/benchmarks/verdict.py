"""Verdict on arrivals: faults and lateness."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.benchmarks.loads import Load
from tools.benchmarks.reader import Arrivals


@dataclass(frozen=True, slots=True)
class Verdict:
    """Faults among the records of one load, counted by key. `early`, `missing` and `duplicate` must
    be zero."""

    received: int
    early: int
    missing: int
    duplicate: int

    @property
    def faults(self) -> int:
        return self.early + self.missing + self.duplicate


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds between due time and arrival at the consumer, over `records` records."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def judge(arrivals: Arrivals, load: Load) -> Verdict:
    numbers = arrivals.sequence - load.first_sequence
    ours = numbers[(numbers >= 0) & (numbers < load.count)]
    times = np.bincount(ours, minlength=load.count)
    strangers = len(numbers) - len(ours)
    return Verdict(
        received=len(numbers),
        early=int((arrivals.lateness_ms < 0).sum()),
        missing=int((times == 0).sum()),
        duplicate=int((times - 1).clip(min=0).sum()) + strangers,
    )


def lateness(arrivals: Arrivals, due_from_ms: float, due_until_ms: float) -> Lateness:
    return lateness_within(arrivals, [(due_from_ms, due_until_ms)])


def lateness_within(arrivals: Arrivals, spans_ms: Sequence[tuple[float, float]]) -> Lateness:
    chosen = np.zeros(len(arrivals.due_ms), np.bool_)
    for from_ms, until_ms in spans_ms:
        chosen |= (arrivals.due_ms >= from_ms) & (arrivals.due_ms < until_ms)
    late_ms = arrivals.lateness_ms[chosen]
    if not len(late_ms):
        return Lateness(0, *[float("nan")] * 4)
    p50_ms, p99_ms, p999_ms = np.percentile(late_ms, [50, 99, 99.9])
    return Lateness(
        len(late_ms),
        round(float(p50_ms), 1),
        round(float(p99_ms), 1),
        round(float(p999_ms), 1),
        round(float(late_ms.max()), 1),
    )
