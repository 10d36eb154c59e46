"""The books over millions of records: what came, once or twice, early or not at all.

A byte for each record that may be written, by the number in its key (`tools.benchmarks.keys`). So a
record is known by what the generator wrote, not by what the proxy says of it, also where it was
written to the ingress again on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tools.benchmarks.keys import Keys
from tools.benchmarks.verdict import Verdict
from tools.overload.lateness_by_second import Late, LatenessBySecond

Milliseconds = npt.NDArray[np.int64]


class Phase(NamedTuple):
    """A part of a load that is told apart: at most so many records, all of which are to come, or
    none of which is due before the end."""

    name: str
    most_records: int
    is_awaited: bool = True


class Came(NamedTuple):
    """What came of a phase; the times (epoch ms) are None when nothing did."""

    phase: str
    written: int
    first_ms: float | None
    last_ms: float | None
    late: Late


@dataclass(frozen=True, slots=True)
class Account:
    """What the books say at the end. `by_second`: how late what came in each second was.

    `missing` are the numbers of the first records that did not come.
    """

    verdict: Verdict
    came: dict[str, Came]
    by_second: list[tuple[int, Late]]
    missing: list[int]


class Ledger:
    """Records are numbered through all phases, in the order of these."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = phases
        self._firsts = _firsts(phases)
        self._has_come = np.zeros(sum(phase.most_records for phase in phases), np.bool_)
        self._lateness = [LatenessBySecond() for _ in phases]
        self._all = LatenessBySecond()
        self._spans: list[list[float]] = [[] for _ in phases]
        self._received = self._early = self._again = self._strangers = 0

    def note(self, keys: Keys, appended_ms: Milliseconds, received_ms: float) -> None:
        """Records that came together: when the broker had each, and when they were read (epoch
        ms). Early is judged by the broker: the reader may be far behind."""
        numbers, due_ms = keys["sequence"].astype(np.int64), keys["due_ms"].astype(np.int64)
        late_ms = (received_ms - due_ms).astype(np.float64)
        is_known = (numbers >= 0) & (numbers < len(self._has_come))
        known, times = np.unique(numbers[is_known], return_counts=True)
        self._received += len(numbers)
        self._strangers += int((~is_known).sum())
        self._early += int((appended_ms < due_ms).sum())
        self._again += int((times - 1).sum() + self._has_come[known].sum())
        self._has_come[known] = True
        self._all.note(received_ms, late_ms)
        self._note_phases(numbers, late_ms, received_ms)

    def account(self, written: Sequence[int]) -> Account:
        """The end of it: so many were written in each phase, the first of its numbers."""
        awaited = np.zeros(len(self._has_come), np.bool_)
        for first, phase, count in zip(self._firsts, self._phases, written, strict=True):
            awaited[first : first + count] = phase.is_awaited
        missing = np.flatnonzero(awaited & ~self._has_come)
        invented = int((self._has_come & ~awaited).sum()) + self._strangers
        verdict = Verdict(self._received, self._early, len(missing), self._again + invented)
        came = {
            phase.name: Came(phase.name, count, *_span(span), lateness.whole())
            for phase, count, span, lateness in zip(
                self._phases, written, self._spans, self._lateness, strict=True
            )
        }
        return Account(verdict, came, [*self._all.by_second()], missing[:10].tolist())

    def _note_phases(
        self, numbers: npt.NDArray[np.int64], late_ms: npt.NDArray[np.float64], received_ms: float
    ) -> None:
        for at, (first, phase) in enumerate(zip(self._firsts, self._phases, strict=True)):
            belongs = (numbers >= first) & (numbers < first + phase.most_records)
            if belongs.any():
                self._lateness[at].note(received_ms, late_ms[belongs])
                self._spans[at][1:] = [received_ms]  # the first stays


def _firsts(phases: Sequence[Phase]) -> list[int]:
    return [sum(phase.most_records for phase in phases[:at]) for at in range(len(phases))]


def _span(span: Sequence[float]) -> tuple[float | None, float | None]:
    return (span[0], span[-1]) if span else (None, None)
