"""Looks at every run a wheel reaches and compares what pends with what the checkpoint says."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint
from storage.shard.inspection import count_findings
from storage.shard.memory.columns import are_beyond
from storage.shard.memory.counts import Counts, no_counts
from storage.store import Column
from storage.wheel.log.body_files import BodyFiles, file_keys
from storage.wheel.log.records import (
    Rows,
    Run,
    joined,
    stretches,
)
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.timer_wheel import TimerWheel
from storage.wheel.wheel_files import counted_by_name

MOST_FINDINGS = 100
RUNS_AT_ONCE = 4096
ROWS_AT_ONCE = 1 << 17
"""Of which 7 MiB are in memory, and as much again while they are looked at."""


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
        for runs in self._some_at_a_time():
            pending = self._pending_of(runs)
            self._note(pending)
            keep(pending)
        self._compare_segments()
        self._found += count_findings(self._seen, self._checkpoint)
        self._look_for_bodies()
        return self._found[:MOST_FINDINGS]

    def _some_at_a_time(self) -> Iterator[list[tuple[int, Run]]]:
        """All runs that the wheel reaches, each with its place."""
        runs: list[tuple[int, Run]] = []
        rows = 0
        for place in np.flatnonzero(self._wheel.cells["count"]).tolist():
            for run in self._chain(place):
                runs.append((place, run))
                rows += run.records
                if len(runs) >= RUNS_AT_ONCE or rows >= ROWS_AT_ONCE:
                    yield runs
                    runs, rows = [], 0
        if runs:
            yield runs

    def _chain(self, place: int) -> Iterator[Run]:
        try:
            for run in self._log.chain(self._wheel.heads(np.array([place]))[0]):
                self._live[self._log.number(run.position)] += run.records
                yield run
        except StoreDamaged as damage:
            self._found.append(f"wheel slot {place}: {damage}")

    def _pending_of(self, runs: list[tuple[int, Run]]) -> Rows:
        """Check the runs, each with its place; the rows in them that pend."""
        rows = joined([run.rows for _, run in runs])
        self.runs += len(runs)
        self.records += rows.size
        slots = np.array([run.slot for _, run in runs])
        misplaced = slots % self._wheel.slots != np.array([place for place, _ in runs])
        owners = np.repeat(np.arange(len(runs)), [run.records for _, run in runs])
        precision_ms = self._checkpoint.options["precision_ms"]
        misplaced[owners[rows["due_ms"] // precision_ms != slots[owners]]] = True
        self._report(runs, np.flatnonzero(misplaced), "belongs elsewhere")
        self._report(runs, np.unique(owners[1:][_steps_back(rows, owners)]), "is out of order")
        ended = (self._checkpoint.watermark_ms, self._checkpoint.cursor)
        pending: Rows = rows[are_beyond(rows["due_ms"], rows["offset"], ended)]
        return pending

    def _report(self, runs: list[tuple[int, Run]], which: Column, what: str) -> None:
        for place, run in [runs[at] for at in which.tolist()]:
            self._found.append(f"wheel slot {place}: the run at {run.position} {what}")

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
        keys = file_keys(rows["due_ms"], rows["span"].astype(np.int64))
        order = np.argsort(keys, kind="stable")
        ends = (rows["position"] + rows["length"])[order]
        for start, count in stretches(keys[order]):
            key, need_bytes = int(keys[order[start]]), int(ends[start : start + count].max())
            self._needed_bytes[key] = max(need_bytes, self._needed_bytes.get(key, 0))

    def _look_for_bodies(self) -> None:
        for key, need_bytes in sorted(self._needed_bytes.items()):
            if self._bodies.size_bytes(key) < need_bytes:
                self._found.append(
                    f"{self._bodies.path(key)} has {self._bodies.size_bytes(key)} bytes, its "
                    f"records need {need_bytes}"
                )


def _steps_back(rows: Rows, owners: Column) -> npt.NDArray[np.bool_]:
    """For each row but the first: whether it does not lie beyond the row before in its run."""
    due_steps, offset_steps = np.diff(rows["due_ms"]), np.diff(rows["offset"])
    onward = (due_steps > 0) | ((due_steps == 0) & (offset_steps > 0))
    back: npt.NDArray[np.bool_] = ~onward & (owners[1:] == owners[:-1])
    return back
