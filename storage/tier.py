"""What a kind of store does on disk, behind the memtables of a `TieredStore`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from storage.counts import Counts, DueHistogram, TargetNumbers
from storage.errors import StoreDamaged, StoreMismatch
from storage.folder import Checkpoint, Files
from storage.memtable import Memtable
from storage.options import Options, StoreKind
from storage.store import NO_COUNTS, Committed, Due, Entry, Key, Scanned, TargetCounts, Wants


@dataclass(slots=True)
class Ledger:
    """The numbers of an open store."""

    watermark_ms: int
    cursor: int
    counted: Key
    """The watermark and cursor up to which `counts` reflected what had ended at the opening."""
    floor: int
    """Nothing below it pended at the opening."""
    covered: int
    """All offsets below it are in the files."""
    next_offset: int
    """All offsets below it are committed and were put here."""
    counts: Counts
    """The pending entries on disk."""

    @property
    def ended(self) -> Key:
        """Watermark and cursor."""
        return self.watermark_ms, self.cursor


class DiskTier(Protocol):
    """The pending entries on disk. Their counts are in the store's `Ledger`.

    Reads may raise StoreDamaged. Every method may raise OSError."""

    @property
    def peeked_bytes(self) -> int:
        """Size of the bodies that were peeked at and have not ended."""
        ...

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """Return the first `max_entries` entries due by `until_ms`, at least one.

        Bodies are read while all peeked bodies take at most `max_bytes`."""
        ...

    def next_due_ms(self, until_ms: int) -> int | None:
        """Return the earliest due. If none is due by `until_ms`, return None or a later one."""
        ...

    def forget(self, ended: Key) -> None:
        """Count out every entry at or below `ended`, the ledger's new watermark."""
        ...

    def count_dues(self, histogram: DueHistogram) -> None:
        """Add the approximate dues of all entries to `histogram`."""
        ...

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Do `Store.scan` for the entries on disk. `after` is not below the watermark."""
        ...

    def load(self, budget_entries: int) -> int:
        """Read ahead, and look for damage. Return how many entries that was worth."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether `load` has more to do."""
        ...

    @property
    def wants_compaction(self) -> bool:
        """Whether enough has ended that a `flush` would free space."""
        ...

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """Write a memtable, compact, and replace the checkpoint with one covering `coverable()`.

        Yields about how many entries each step was worth. The memtable serves its entries until
        the last step; then they are read from disk and counted in the ledger. An OSError undoes
        all steps. A failure after the checkpoint was replaced is StoreDamaged."""
        ...

    def persist(self) -> None:
        """Make flushed entries survive the end of the process."""
        ...

    def close(self) -> None:
        """Release the files. Writes nothing."""
        ...


# Opening a shard's folder at the broker's committed offset, whatever its kind.


@dataclass(frozen=True, slots=True)
class Opening:
    """What a kind is told to open its disk tier."""

    folder: Path
    kind: StoreKind
    committed: Committed
    options: Options
    files: Files

    def ledger(self, checkpoint: Checkpoint, bound: dict[str, int]) -> Ledger:
        """The ledger to begin with. Raises StoreDamaged when the checkpoint is ahead of the broker,
        StoreMismatch when it was made with other numbers than `bound`."""
        at = self.committed
        ended = (checkpoint.watermark_ms, checkpoint.cursor)
        refuse_ahead(self.folder, checkpoint.covered, ended, at)
        for name, asked in bound.items():
            if checkpoint.options.get(name) != asked:
                raise StoreMismatch(self.folder, name, checkpoint.options.get(name), asked)
        covered = min(at.next_offset, max(checkpoint.covered, at.floor))
        targets = checkpoint.counts.targets
        numbers = TargetNumbers(
            targets.numbers.by_number, self.options.most_names, is_closed=targets.others > 0
        )
        return Ledger(
            watermark_ms=at.watermark_ms,
            cursor=at.cursor,
            counted=ended,
            floor=at.floor,
            covered=covered,
            next_offset=covered,
            counts=checkpoint.counts.copy(numbers),
        )


class OpenedTier(NamedTuple):
    """A disk tier with its ledger; the options may be bounded by what the tier can take."""

    tier: DiskTier
    ledger: Ledger
    options: Options
    is_new: bool


def refuse_ahead(folder: Path, covered: int, ended: Key, committed: Committed) -> None:
    """Raise StoreDamaged when the folder knows more than the broker has committed."""
    if covered > committed.next_offset:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered}, but the broker's committed "
            f"offset is {committed.next_offset}: it was reset"
        )
    if 0 < covered <= committed.distrusted:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered} only, from before the watermark was set back"
        )
    if ended > (committed.watermark_ms, committed.cursor):
        raise StoreDamaged(
            f"{folder} stands at watermark {ended[0]}/{ended[1]}, beyond "
            f"the broker's {committed.watermark_ms}/{committed.cursor}"
        )


OpenTier: TypeAlias = Callable[[Opening], OpenedTier]
"""Opens or makes a kind's files. Raises StoreDamaged, StoreMismatch, OSError."""


# Looking into a folder without opening it for writing.


@dataclass(slots=True)
class FolderReport:
    """The result of `verify`. The folder is sound if `findings` is empty."""

    folder: Path
    findings: list[str] = field(default_factory=list)
    covered: int = 0
    watermark_ms: int = -1
    cursor: int = -1
    pending: int = 0
    pending_by_target: TargetCounts = NO_COUNTS
    pending_bytes: int = 0
    runs: int = 0
    records: int = 0
    segments: int = 0


class FolderReader(Protocol):
    """A folder opened for reading. Damage raises StoreDamaged, OSError or ValueError."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last checkpoint. None if nothing was written yet."""
        ...

    def check(self, report: FolderReport) -> None:
        """Check the structure of the files. Report findings and sizes."""
        ...

    def batches(self) -> Iterator[list[Entry]]:
        """Yield the pending entries in (due, offset) order."""
        ...


Look: TypeAlias = Callable[[Path], AbstractContextManager[FolderReader]]
"""Opens a kind's files for reading. Raises FileNotFoundError if there is no checkpoint."""
