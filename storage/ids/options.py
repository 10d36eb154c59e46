"""The numbers a register is run with; none of them shapes its files."""

from dataclasses import dataclass

from storage.options import MOST_NAMES


@dataclass(frozen=True, slots=True)
class IdOptions:
    """Bounds on memory and on the work of one step.

    A register keeps up to twice the `memtable_*` bounds in memory, and what waits to be settled."""

    memtable_entries: int = 32_768
    memtable_bytes: int = 2 * 1024 * 1024
    """Bytes of the ids in a memtable, without what Python adds: 100 to 350 bytes each."""
    replayed_offsets: int = 65_536
    """Offsets a restart may have to read again before memory is written out."""
    few_ids: int = 32
    """New ids put together are kept as arrays; fewer than these are not worth it."""
    write_entries: int = 4_096
    """Ids of a memtable that one step makes into columns."""
    merge_entries: int = 8_192
    """Rows that one step copies from runs to a run."""
    merged_runs: int = 8
    """So many runs at least are merged at a time: with fewer, rows are copied more often."""
    most_names: int = MOST_NAMES
    """So many targets at once have their tombstones counted by name."""
    most_runs: int = 64
    """With so many runs a memtable waits for a merge before it is written."""

    def __post_init__(self) -> None:
        if not 2 <= self.merged_runs <= self.most_runs:
            raise ValueError("merged_runs must be at least 2 and at most most_runs")
        if min(self.memtable_entries, self.write_entries, self.merge_entries) < 1:
            raise ValueError("memtables and steps hold at least 1 entry")
