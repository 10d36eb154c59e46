"""Checks of the wheel's files, and what an operator may see of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.counts import UNNAMED, Counts, no_counts
from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, Checkpoint, Files, kind_of, read_checkpoint
from storage.inspection import FolderReport, count_findings
from storage.memtable import are_beyond
from storage.store import Column, Entry
from storage.tiered_store import Ledger
from storage.wheel.flush import mend_wheel
from storage.wheel.log import (
    RECORD,
    BodyFiles,
    Head,
    Rows,
    TimerLog,
    are_whole,
    headers_at,
    in_order,
    joined,
    places_of,
    rows_of,
    stretches,
)
from storage.wheel.wheel import (
    BODIES,
    LOG,
    TimerWheel,
    WheelFiles,
    copy_wheel,
    counted_by_name,
    entries_of,
)

# How long the files of bodies have to be for the rows of a log.


def needed_bytes(rows: Rows) -> dict[int, int]:
    """By file, for rows that pend. Raises StoreDamaged where one names a file that cannot be."""
    keys, positions = places_of(rows)
    order = keys.argsort(kind="stable")
    ends = (positions + rows["length"])[order]
    return {
        int(keys[order[start]]): int(ends[start : start + count].max())
        for start, count in stretches(keys[order])
    }


def too_short(bodies: BodyFiles, needed: Mapping[int, int]) -> list[str]:
    """The files that have less, as sentences."""
    return [
        f"{bodies.path(key)} has {bodies.size_bytes(key)} bytes, its records need {need_bytes}"
        for key, need_bytes in sorted(needed.items())
        if bodies.size_bytes(key) < need_bytes
    ]


# Looks at every run a wheel reaches and compares what pends with what the checkpoint says.

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


# Looks through a wheel's log beside delivery, after the machine was started anew.


class BackgroundCheck:
    """When the machine stopped, writes may have been lost in any order. The wheel itself was
    compared with the checkpoint as it was opened; each run and body is checked when it is read.
    This is so that damage is found within minutes, and not when the record is due.

    Chains that begin soon come first. Those written since need no look."""

    def __init__(self, files: WheelFiles, ledger: Ledger) -> None:
        self.is_over = False
        self._files, self._ledger = files, ledger
        places, wheel = files.wheel.held(), files.wheel
        now = ledger.watermark_ms // files.options.precision_ms % wheel.slots
        self._places = np.roll(places, -int(np.searchsorted(places, now)))
        self._steps = self._follow(self._places)
        self._rows: list[Rows] = []

    def look(self, budget_records: int) -> None:
        """Go on for about so many records. Raises StoreDamaged."""
        spent = 0
        while spent < budget_records and not self.is_over:
            step = next(self._steps, None)
            self.is_over = step is None
            spent += step or 0
        rows, self._rows = self._rows, []
        if rows:
            self._look_for_bodies(joined(rows))

    def _follow(self, places: Column) -> Iterator[int]:
        """The chains of these places, run by run: about how many records each step was worth."""
        for place in places.tolist():
            yield 1
            yield from self._chain(place)

    def _chain(self, place: int) -> Iterator[int]:
        """Between two steps it may have been written anew, and its segments dropped: whatever does
        that has read it."""
        wheel = self._files.wheel
        head = wheel.head(place)
        try:
            for run in self._files.chain(place, head):
                self._rows.append(run.rows)
                yield run.records
        except StoreDamaged:
            if wheel.head(place) == head:
                raise

    def _look_for_bodies(self, rows: Rows) -> None:
        """Only of what pends: other files may be gone."""
        pends = are_beyond(rows["due_ms"], rows["offset"], self._ledger.ended)
        if lacking := too_short(self._files.bodies, needed_bytes(rows.compress(pends))):
            raise StoreDamaged(lacking[0])


# A wheel's folder opened for reading only.

READ_AT_ONCE = 1024


@dataclass(slots=True)
class WheelReader:
    """The wheel is a copy in memory, mended; log and bodies are read from their files."""

    checkpoint: Checkpoint
    log: TimerLog
    bodies: BodyFiles
    consistency: ConsistencyCheck

    def check(self, report: FolderReport) -> None:
        """Check every run, chain, slot, body and count."""
        kept: list[Rows] = []
        report.findings += self.consistency.findings(kept.append)
        for rows in _batches(kept):
            try:
                found = self._misplaced_names(rows, self.bodies.read(rows))
            except StoreDamaged as damage:
                found = [str(damage)]
            report.findings += [finding for finding in found if finding not in report.findings]
        report.pending = self.consistency.pending
        report.runs, report.records = self.consistency.runs, self.consistency.records
        report.segments = len(self.log.segments)

    def entries(self) -> Iterator[Entry]:
        """The entries that pend, in order."""
        kept: list[Rows] = []
        self.consistency.findings(kept.append)
        names = defaultdict(str, self.checkpoint.counts.targets.numbers.by_number)
        for rows in _batches(kept):
            yield from entries_of(rows, self.bodies.read(rows), names)

    def _misplaced_names(self, rows: Rows, bodies: list[bytes]) -> list[str]:
        """Targets that have a number and yet are not counted by name everywhere."""
        unnamed = rows["target"] == UNNAMED
        if not unnamed.any():
            return []
        found = entries_of(rows.compress(unnamed), list(compress(bodies, unnamed.tolist())), {})
        by_name = self.checkpoint.counts.targets.numbers.by_name
        misplaced = {target for _, _, target, _ in found if target in by_name}
        return [f"{target} has a number, but records without it" for target in sorted(misplaced)]


def _batches(kept: list[Rows]) -> Iterator[Rows]:
    """All rows in their order, some at a time."""
    pending = in_order(joined(kept)) if kept else np.zeros(0, RECORD)
    for start in range(0, len(pending), READ_AT_ONCE):
        yield pending[start : start + READ_AT_ONCE]


@contextmanager
def look_into_wheel(folder: Path) -> Iterator[WheelReader]:
    """Read the folder. Raises StoreDamaged, and FileNotFoundError where there is no checkpoint."""
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    files = Files()
    segment_bytes, precision_ms = (
        checkpoint.options[name] for name in ("segment_bytes", "precision_ms")
    )
    log = TimerLog(folder / LOG, segment_bytes, precision_ms, files, writable=False)
    bodies = BodyFiles(folder / BODIES, files)
    try:
        wheel = copy_wheel(folder / (kind_of(folder) or "wheel"))
        if wheel.slots != checkpoint.options["slots"]:
            raise StoreDamaged(f"{folder} has a wheel of {wheel.slots} slots")
        mend_wheel(wheel, log, checkpoint)
        yield WheelReader(checkpoint, log, bodies, ConsistencyCheck(wheel, log, checkpoint, bodies))
    finally:
        log.close()
        bodies.close()
