"""Ledger of millions of records: which were received, duplicated, early or missing. It has one byte
per record, at the number in the record's key (`tools.benchmarks.keys`). The generator wrote this
number. So the ledger does not depend on headers that the proxy writes."""

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
    """Part of a load with at most `most_records`. All records of an awaited phase must arrive. The
    records of other phases are due after the end of the scenario."""

    name: str
    most_records: int
    is_awaited: bool = True


class Came(NamedTuple):
    phase: str
    written: int
    first_ms: float | None
    last_ms: float | None
    late: Late


@dataclass(frozen=True, slots=True)
class Account:
    """Result of a ledger. `by_second` is the lateness of arrivals. `missing` has the numbers of the
    first missing records."""

    verdict: Verdict
    came: dict[str, Came]
    by_second: list[tuple[int, Late]]
    missing: list[int]


class Ledger:
    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = phases
        self._firsts = _firsts(phases)
        self._has_come = np.zeros(sum(phase.most_records for phase in phases), np.bool_)
        self._lateness = [LatenessBySecond() for _ in phases]
        self._all = LatenessBySecond()
        self._spans: list[list[float]] = [[] for _ in phases]
        self._received = self._early = self._again = self._strangers = 0

    def note(self, keys: Keys, appended_ms: Milliseconds, received_ms: float) -> None:
        """Add records that arrived together, with their append times and the read time (epoch ms).
        A record is early if it was appended before its due. The read time would not show this,
        because the reader may be far behind."""
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
        """Return the result, given the number of records written in each phase."""
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
                self._spans[at][1:] = [received_ms]  # keep the first moment


def _firsts(phases: Sequence[Phase]) -> list[int]:
    return [sum(phase.most_records for phase in phases[:at]) for at in range(len(phases))]


def _span(span: Sequence[float]) -> tuple[float | None, float | None]:
    return (span[0], span[-1]) if span else (None, None)
