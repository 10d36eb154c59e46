"""The files of one wheel, opened together, and entries on their way in and out of them."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from storage.errors import StoreDamaged
from storage.options import Options
from storage.shard.checkpoint import Checkpoint, boot_id
from storage.shard.files import Files
from storage.shard.memory.columns import Columns
from storage.shard.memory.counts import Counts
from storage.shard.memory.target_counter import TargetCounter
from storage.shard.memory.target_numbers import UNNAMED, TargetNumbers, resolved
from storage.store import Column, Entry
from storage.wheel.chain_writer import ChainWriter
from storage.wheel.log.body_files import BodyFiles, file_keys, spans_of
from storage.wheel.log.records import RECORD, Head, Rows, Run, locate, stretches
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.timer_wheel import TimerWheel

LOG, BODIES, STORED_TO = "log", "bodies", "stored-to"


class WheelFiles:
    """Wheel, log and bodies of one folder, and the shard's numbers of targets."""

    def __init__(
        self,
        folder: Path,
        options: Options,
        files: Files,
        wheel: TimerWheel,
        log: TimerLog,
        checkpoint: Checkpoint,
        numbers: TargetNumbers,
    ) -> None:
        self.folder = folder
        self.options = options
        self.files = files
        self.wheel = wheel
        self.log = log
        self.bodies = BodyFiles(folder / BODIES, files)
        self._numbers = numbers
        self.checkpoint = checkpoint
        self.boot_id = boot_id()
        """That checkpoints name: what was written before this boot is known to be whole."""
        self._stored_to = -1

    @property
    def names(self) -> Mapping[int, str]:
        """Targets by number."""
        return self._numbers.by_number

    def chain_writer(self) -> ChainWriter:
        """For the changes of one flush."""
        return ChainWriter(self.wheel, self.log)

    def chain(self, slot: int, head: Head, *, checked: bool = True) -> Iterator[Run]:
        """The runs of the chain that keeps slot number `slot`, newest first; `checked` by their
        CRCs. Raises StoreDamaged."""
        for run in self.log.chain(head, checked=checked):
            if (run.slot - slot) % self.wheel.slots:
                raise StoreDamaged(
                    f"{self.log.folder}: the run at {run.position} belongs elsewhere"
                )
            yield run

    def rows_for(self, entries: Columns, watermark_ms: int) -> Rows:
        """Write the bodies of entries given in (due, offset) order; their index rows."""
        rows = np.zeros(len(entries.bodies), RECORD)
        rows["due_ms"] = entries.dues_ms
        rows["offset"] = entries.offsets
        rows["target"] = entries.targets
        rows["length"] = np.fromiter(map(len, entries.bodies), np.int64, rows.size)
        rows["crc"] = entries.crcs
        self._write_bodies(rows, spans_of(entries.dues_ms, watermark_ms), entries.bodies)
        return rows

    def entries_of(self, rows: Rows) -> list[Entry]:
        """Read the bodies of index rows and give the entries, in the same order."""
        return entries_of(rows, self.bodies.read(rows), self._numbers.by_number)

    def count_ended(self, counts: Counts, rows: Rows) -> None:
        """Take index rows out of `counts`."""
        numbers = self._numbers
        counts.subtract(rows["offset"], *counted_by_name(rows, numbers.by_number, numbers))

    def counts_of(self, rows: Rows) -> Counts:
        """What index rows count."""
        numbers = self._numbers
        counts = Counts(*counted_by_name(rows, numbers.by_number, numbers))
        counts.chunks.add(rows["offset"])
        return counts

    def note_stored(self) -> None:
        """Note that the wheel has all runs of the checkpoint; without it they are stored again."""
        log_end = self.checkpoint.log_end
        if log_end != self._stored_to:
            with suppress(OSError):
                self.files.replace(self.folder / STORED_TO, b"%d" % log_end)
                self._stored_to = log_end

    def close(self) -> None:
        """Give the files back."""
        self.log.close()
        self.bodies.close()

    def _write_bodies(self, rows: Rows, spans: Column, bodies: list[bytes]) -> None:
        keys = file_keys(rows["due_ms"], spans)
        positions = np.cumsum(rows["length"], dtype=np.int64) - rows["length"]
        for first, count in stretches(keys):
            base = self.bodies.append(int(keys[first]), bodies[first : first + count])
            positions[first : first + count] += base - positions[first]
        locate(rows, spans, positions)


def has_all_runs(folder: Path, log_end: int) -> bool:
    """Whether it is noted that the wheel has all runs of a log with this end. An older note says
    nothing that the checkpoint's `redo_from` does not."""
    try:
        return int((folder / STORED_TO).read_bytes()) == log_end
    except (OSError, ValueError):
        return False


def entries_of(rows: Rows, bodies: list[bytes], names: Mapping[int, str]) -> list[Entry]:
    """Index rows and their bodies as entries; `names` of targets by number."""
    try:
        targets, bodies = resolved(names, rows["target"], bodies)
    except KeyError as number:
        raise _nameless(number) from None
    dues_ms, offsets = rows["due_ms"].tolist(), rows["offset"].tolist()
    return list(zip(dues_ms, offsets, targets, bodies, strict=True))


def counted_by_name(
    rows: Rows, names: Mapping[int, str], numbers: TargetNumbers
) -> tuple[TargetCounter, TargetCounter]:
    """How many of the index rows there are for each target, and the bytes of their bodies."""
    met, which, counts = np.unique(rows["target"], return_inverse=True, return_counts=True)
    sizes = np.bincount(which, rows["length"], met.size).astype(np.int64)
    found = [_counter(met, amounts, names, numbers) for amounts in (counts, sizes)]
    return found[0], found[1]


def _counter(
    met: Column, amounts: Column, names: Mapping[int, str], numbers: TargetNumbers
) -> TargetCounter:
    by_number = dict(zip(met.tolist(), amounts.tolist(), strict=True))
    others = by_number.pop(UNNAMED, 0)
    try:
        by_name = {names[number]: amount for number, amount in by_number.items() if amount}
    except KeyError as number:
        raise _nameless(number) from None
    return TargetCounter(numbers, by_name, others)


def _nameless(number: KeyError) -> StoreDamaged:
    return StoreDamaged(f"a record of the log names target {number}, which has no name")
