"""Looks at every run a wheel reaches and compares what pends with what the checkpoint says."""

from collections import Counter

import numpy as np

from storage.bodies import BodyFiles, file_keys
from storage.checkpoint import Checkpoint
from storage.counts import Counts
from storage.errors import StoreDamaged
from storage.log import TimerLog
from storage.records import RECORD, Rows, Run, in_order, joined, stretches
from storage.wheel import TimerWheel

MOST_FINDINGS = 100


class Examination:
    """Reads only. The wheel must have been mended first; `pending` has the rows that pend."""

    def __init__(
        self, wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint, bodies: BodyFiles
    ) -> None:
        self.runs = 0
        self.records = 0
        self.pending: Rows = np.zeros(0, RECORD)
        self._wheel = wheel
        self._log = log
        self._checkpoint = checkpoint
        self._bodies = bodies
        self._live: Counter[int] = Counter()
        self._found: list[str] = []

    def findings(self) -> list[str]:
        """Everything wrong, as sentences; at most MOST_FINDINGS."""
        pending = [
            rows
            for place in np.flatnonzero(self._wheel.cells["count"]).tolist()
            for rows in self._chain(place)
        ]
        if pending:
            self.pending = in_order(joined(pending))
        self._compare_segments()
        self._compare_counts()
        self._look_for_bodies()
        return self._found[:MOST_FINDINGS]

    def _chain(self, place: int) -> list[Rows]:
        live: list[Rows] = []
        try:
            for run in self._log.chain(self._wheel.heads(np.array([place]))[0]):
                self._run(place, run)
                rows = run.rows[run.upto(self._checkpoint.watermark_ms, self._checkpoint.cursor) :]
                if rows.size:
                    live.append(rows)
        except StoreDamaged as damage:
            self._found.append(f"wheel slot {place}: {damage}")
        return live

    def _run(self, place: int, run: Run) -> None:
        self.runs += 1
        self.records += run.count
        self._live[self._log.number(run.position)] += run.count
        slots = run.rows["due_ms"] // self._checkpoint.options["precision_ms"]
        if run.slot % self._wheel.slots != place or (slots != run.slot).any():
            self._found.append(f"wheel slot {place}: the run at {run.position} belongs elsewhere")
        dues, offsets = run.rows["due_ms"], run.rows["offset"]
        later = (dues[1:] > dues[:-1]) | ((dues[1:] == dues[:-1]) & (offsets[1:] > offsets[:-1]))
        if not later.all():
            self._found.append(f"wheel slot {place}: the run at {run.position} is out of order")

    def _compare_segments(self) -> None:
        said = Counter(self._checkpoint.live)
        for number in sorted(said.keys() | self._live.keys()):
            if said[number] != self._live[number]:
                self._found.append(
                    f"{self._log.path(number)}: {self._live[number]} records are reached, "
                    f"{said[number]} are counted"
                )

    def _compare_counts(self) -> None:
        said = self._checkpoint.counts
        seen = Counts()
        seen.chunks.add(self.pending["offset"])
        numbers, counts = np.unique(self.pending["target"], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            seen.targets[self._checkpoint.names.get(number, f"unknown target {number}")] += count
        if seen.targets != said.targets:
            self._found.append(f"{dict(seen.targets)} pend, {dict(said.targets)} are counted")
        if not said.chunks.counts_same(seen.chunks):
            self._found.append("the pending offsets are not the ones the checkpoint counts")

    def _look_for_bodies(self) -> None:
        rows = self.pending
        keys = file_keys(rows["due_ms"], rows["span"].astype(np.int64))
        order = np.argsort(keys, kind="stable")
        ends = (rows["position"] + rows["length"])[order]
        for start, count in stretches(keys[order]):
            key = int(keys[order[start]])
            need_bytes = int(ends[start : start + count].max())
            if self._bodies.size_bytes(key) < need_bytes:
                self._found.append(
                    f"{self._bodies.path(key)} has {self._bodies.size_bytes(key)} bytes, its "
                    f"records need {need_bytes}"
                )
