"""Looks at every run a wheel reaches and compares what pends with what the checkpoint says."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint
from storage.shard.inspection import count_findings
from storage.shard.memory.columns import are_beyond
from storage.shard.memory.counts import Counts, no_counts
from storage.store import Column
from storage.wheel.inspection.needed_bodies import needed_bytes, too_short
from storage.wheel.log.body_files import BodyFiles
from storage.wheel.log.many_runs import are_whole, headers_at, rows_of
from storage.wheel.log.records import Head, Rows
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.timer_wheel import TimerWheel
from storage.wheel.wheel_files import counted_by_name

MOST_FINDINGS = 100
CHAINS_AT_ONCE = 4096
ROWS_AT_ONCE = 1 << 17
"""Of which 5 MiB are in memory, and as much again while they are looked at."""


class _Runs(NamedTuple):
    """Runs with the places of their chains, as columns."""

    places: Column
    positions: Column
    headers: Rows

    def taken(self, at: Column) -> "_Runs":
        return _Runs(self.places[at], self.positions[at], self.headers.take(at))

    def parts(self) -> Iterator["_Runs"]:
        """All of them, as many at a time as have ROWS_AT_ONCE; one at least."""
        ends = np.cumsum(self.headers["count"], dtype=np.int64)
        start = before = 0
        while start < ends.size:
            fit = int(np.searchsorted(ends, before + ROWS_AT_ONCE, "right"))
            stop = max(start + 1, fit)
            part = slice(start, stop)
            yield _Runs(self.places[part], self.positions[part], self.headers[part])
            start, before = stop, int(ends[stop - 1])


class ConsistencyCheck:
    """Reads only, in a bounded memory. The wheel must have been mended first; `pending`: how many
    rows pend."""

    def __init__(
        self, wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint, bodies: BodyFiles
    ) -> None:
        self.runs = 0
        self.records = 0
        self.pending = 0
        self._wheel = wheel
        self._log = log
        self._checkpoint = checkpoint
        self._bodies = bodies
        self._numbers = checkpoint.counts.targets.numbers
        self._seen = no_counts(self._numbers)
        self._needed_bytes: dict[int, int] = {}
        self._live: Counter[int] = Counter()
        self._found: list[str] = []

    def findings(self, keep: Callable[[Rows], object] = lambda _rows: None) -> list[str]:
        """Everything wrong, as sentences; at most MOST_FINDINGS. `keep` gets the rows that pend,
        some at a time and in no order."""
        places = self._wheel.held()
        for first in range(0, places.size, CHAINS_AT_ONCE):
            for runs in self._runs(places[first : first + CHAINS_AT_ONCE]):
                pending = self._pending_of(runs)
                self._note(pending)
                keep(pending)
        self._compare_segments()
        self._found += count_findings(self._seen, self._checkpoint)
        self._found += too_short(self._bodies, self._needed_bytes)
        return self._found[:MOST_FINDINGS]

    def _runs(self, places: Column) -> Iterator["_Runs"]:
        """The runs of the chains of these places, the newest of each, then the one before it, and
        so on; of a chain that does not add up the runs up to there."""
        heads = self._wheel.table(places)
        positions, left = heads[:, 1], heads[:, 2]
        while places.size:
            headers = headers_at(self._log, positions)
            counts = headers["count"].astype(np.int64)
            adds_up = (headers["chain"] == left) & (counts > 0) & (counts <= left)
            adds_up &= are_whole(self._log, positions, headers)
            for at in np.flatnonzero(~adds_up).tolist():
                why = self._why(int(positions[at]), int(left[at]))
                self._found.append(f"wheel slot {places[at]}: {why}")
            runs = _Runs(places, positions, headers).taken(np.flatnonzero(adds_up))
            yield from runs.parts()
            left = (left - counts)[adds_up]
            goes_on = left > 0
            places, left = runs.places[goes_on], left[goes_on]
            positions = runs.headers["prev"][goes_on]

    def _why(self, position: int, left: int) -> str:
        """What is wrong with the chain of so many records whose newest run is there."""
        try:
            next(self._log.chain(Head(-1, position, left)))
        except StoreDamaged as damage:
            return str(damage)
        return f"the run at {position} has changed while it was read"

    def _pending_of(self, runs: "_Runs") -> Rows:
        """Check the runs; the rows in them that pend."""
        rows = rows_of(self._log, runs.positions, runs.headers)
        self.runs += runs.places.size
        self.records += rows.size
        counts = runs.headers["count"].astype(np.int64)
        numbers, which = np.unique(runs.positions // self._log.segment_bytes, return_inverse=True)
        held = np.bincount(which, counts, numbers.size).astype(np.int64)
        self._live.update(dict(zip(numbers.tolist(), held.tolist(), strict=True)))
        slots = rows["due_ms"] // self._log.precision_ms
        of_run = slots[np.cumsum(counts) - counts]
        misplaced = of_run % self._wheel.slots != runs.places
        owners = np.repeat(np.arange(counts.size), counts)
        misplaced[owners[slots != of_run[owners]]] = True
        self._report(runs, np.flatnonzero(misplaced), "belongs elsewhere")
        self._report(runs, np.unique(owners[1:][_steps_back(rows, owners)]), "is out of order")
        ended = (self._checkpoint.watermark_ms, self._checkpoint.cursor)
        pending: Rows = rows.compress(are_beyond(rows["due_ms"], rows["offset"], ended))
        return pending

    def _report(self, runs: "_Runs", which: Column, what: str) -> None:
        for at in which.tolist():
            self._found.append(
                f"wheel slot {runs.places[at]}: the run at {runs.positions[at]} {what}"
            )

    def _compare_segments(self) -> None:
        counted = Counter(self._checkpoint.live)
        for number in sorted(counted.keys() | self._live.keys()):
            if counted[number] != self._live[number]:
                self._found.append(
                    f"{self._log.path(number)}: {self._live[number]} records are reached, "
                    f"{counted[number]} are counted"
                )

    def _note(self, rows: Rows) -> None:
        """Count rows that pend, and how long the files of their bodies have to be."""
        self.pending += rows.size
        names = self._numbers.by_number
        met = np.unique(rows["target"]).tolist()
        named = {number: names.get(number, f"unknown target {number}") for number in met}
        seen = Counts(*counted_by_name(rows, named, self._numbers))
        seen.chunks.add(rows["offset"])
        self._seen.merge(seen)
        try:
            for key, need_bytes in needed_bytes(rows).items():
                self._needed_bytes[key] = max(need_bytes, self._needed_bytes.get(key, 0))
        except StoreDamaged as damage:
            self._found.append(str(damage))


def _steps_back(rows: Rows, owners: Column) -> npt.NDArray[np.bool_]:
    """For each row but the first: whether it does not lie beyond the row before in its run."""
    due_steps, offset_steps = np.diff(rows["due_ms"]), np.diff(rows["offset"])
    onward = (due_steps > 0) | ((due_steps == 0) & (offset_steps > 0))
    back: npt.NDArray[np.bool_] = ~onward & (owners[1:] == owners[:-1])
    return back
