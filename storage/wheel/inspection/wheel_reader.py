"""A wheel's folder opened for reading only."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from storage.errors import StoreDamaged
from storage.shard.checkpoint import CHECKPOINT, Checkpoint, read_checkpoint
from storage.shard.files import Files
from storage.shard.folder import kind_of
from storage.shard.inspection import FolderReport
from storage.shard.memory.target_numbers import UNNAMED
from storage.store import Entry
from storage.wheel.inspection.consistency_check import ConsistencyCheck
from storage.wheel.log.body_files import BodyFiles
from storage.wheel.log.records import RECORD, Rows, in_order, joined
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.repair import mend_wheel
from storage.wheel.timer_wheel import copy_wheel
from storage.wheel.wheel_files import BODIES, LOG, entries_of

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
