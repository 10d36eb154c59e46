"""A wheel's folder opened for reading only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreDamaged
from storage.shard.checkpoint import CHECKPOINT, Checkpoint, read_checkpoint
from storage.shard.files import Files
from storage.shard.folder import kind_of
from storage.shard.inspection import FolderReport
from storage.store import Entry
from storage.wheel.consistency_check import ConsistencyCheck
from storage.wheel.log.body_files import BodyFiles
from storage.wheel.log.records import Rows
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.repair import mend_wheel
from storage.wheel.timer_wheel import copy_wheel
from storage.wheel.wheel_files import BODIES, LOG

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
        report.findings += self.consistency.findings()
        for rows in self._batches():
            try:
                self.bodies.read(rows)
            except StoreDamaged as damage:
                if str(damage) not in report.findings:
                    report.findings.append(str(damage))
        report.pending = len(self.consistency.pending)
        report.runs, report.records = self.consistency.runs, self.consistency.records
        report.segments = len(self.log.segments)

    def entries(self) -> Iterator[Entry]:
        """The entries that pend, in order."""
        self.consistency.findings()
        for rows in self._batches():
            targets = [self.checkpoint.names.get(number, "") for number in rows["target"].tolist()]
            dues_ms, offsets = rows["due_ms"].tolist(), rows["offset"].tolist()
            yield from zip(dues_ms, offsets, targets, self.bodies.read(rows), strict=True)

    def _batches(self) -> Iterator[Rows]:
        pending = self.consistency.pending
        for start in range(0, len(pending), READ_AT_ONCE):
            yield pending[start : start + READ_AT_ONCE]


@contextmanager
def look_into_wheel(folder: Path) -> Iterator[WheelReader]:
    """Read the folder. Raises StoreDamaged, and FileNotFoundError where there is no checkpoint."""
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    files = Files()
    log = TimerLog(folder / LOG, checkpoint.options["segment_bytes"], files, writable=False)
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
