"""The interface between a `TieredStore` and its disk tier."""

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
    """The watermark, offsets and counts of an open store."""

    watermark_ms: int
    cursor: int
    counted: Key
    """The watermark of the checkpoint. At the opening, `counts` has all entries beyond this key."""
    floor: int
    """No entry at a lower offset was pending at the opening."""
    covered: int
    """Entries at lower offsets are on disk or have ended."""
    next_offset: int
    """Records at lower offsets are committed, and their entries were put."""
    counts: Counts
    """Pending entries on disk."""

    @property
    def ended(self) -> Key:
        return self.watermark_ms, self.cursor


class DiskTier(Protocol):
    """The pending entries on disk. Every method may raise OSError."""

    @property
    def peeked_bytes(self) -> int: ...

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """Return the first entries that fire by `until_ms`. The first may exceed `max_bytes`."""

    def next_fires_ms(self, until_ms: int) -> int | None:
        """Return the earliest firing time. May return None if that time is after `until_ms`."""

    def forget(self, ended: Key) -> None:
        """Remove entries at or below the new watermark from the counts."""

    def count_dues(self, histogram: DueHistogram) -> None: ...

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Do `Store.scan` on disk. `after` is not below the watermark."""

    def load(self, budget_entries: int) -> int:
        """Read ahead and check for damage. Return the work done, in entries."""

    @property
    def is_loading(self) -> bool:
        """Whether `load` has more to do."""

    @property
    def wants_compaction(self) -> bool:
        """Whether a `flush` would free much space."""

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """Write a memtable, compact, and write a checkpoint for all offsets below `coverable()`.

        Yields the work of each step in entries. The memtable serves its entries until the last
        step. An OSError undoes all steps. After the checkpoint, raises StoreDamaged instead."""

    def persist(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments for opening a disk tier."""

    folder: Path
    kind: StoreKind
    committed: Committed
    options: Options
    files: Files

    def ledger(self, checkpoint: Checkpoint, bound: dict[str, int]) -> Ledger:
        """Return the first ledger. Raises StoreDamaged, or StoreMismatch if `bound` has changed."""
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
    """A disk tier with its ledger."""

    tier: DiskTier
    ledger: Ledger
    options: Options
    """The given options. The tier may have lowered their memtable limits."""
    is_new: bool
    """Whether the folder had no checkpoint."""


def refuse_ahead(folder: Path, covered: int, ended: Key, committed: Committed) -> None:
    """Raise StoreDamaged if the folder is ahead of the broker's commit."""
    if covered > committed.next_offset:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered}, but the broker's committed "
            f"offset is {committed.next_offset}: this offset was reset"
        )
    if 0 < covered <= committed.distrusted:
        raise StoreDamaged(
            f"{folder} covers offsets up to {covered} only: it is older than the watermark's reset"
        )
    if ended > (committed.watermark_ms, committed.cursor):
        raise StoreDamaged(
            f"{folder} stands at watermark {ended[0]}/{ended[1]}, beyond "
            f"the broker's {committed.watermark_ms}/{committed.cursor}"
        )


OpenTier: TypeAlias = Callable[[Opening], OpenedTier]
"""Opens or creates the files of a store kind. Raises StoreDamaged, StoreMismatch, OSError."""


@dataclass(slots=True)
class FolderReport:
    """The result of `verify`."""

    folder: Path
    findings: list[str] = field(default_factory=list)
    """Sentences about damage. A sound folder has none."""
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
    def checkpoint(self) -> Checkpoint | None: ...

    def check(self, report: FolderReport) -> None: ...

    def batches(self) -> Iterator[list[Entry]]:
        """Yield the pending entries in (fires_ms, offset) order."""


Look: TypeAlias = Callable[[Path], AbstractContextManager[FolderReader]]
"""Opens the files of a store kind for reading. Raises FileNotFoundError without a checkpoint."""
