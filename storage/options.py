"""What can be chosen of a store, and of a register of ids."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

# The kinds of store, and the numbers a store is made with.

MOST_NAMES: Final = 10_000
"""More topics than most clusters have, and still little to write with each checkpoint."""

StoreKind: TypeAlias = Literal["wheel", "rocksdb"]
"""Values of the setting `store`."""

KINDS: Final[tuple[StoreKind, ...]] = get_args(StoreKind)
RECORD_BYTES = 32
MOST_NUMBERS: Final = 2**16 - 1
"""Of targets: the log has two bytes for one, and the highest stands for none."""


@dataclass(frozen=True, slots=True)
class Options:
    """Shape of the wheel and the log (fixed when the folder is made) and bounds on memory.

    A store keeps up to twice the `memtable_*` bounds: one memtable takes entries while another one
    is written."""

    precision_ms: int = 1000
    slots: int = 7 * 86_400
    segment_bytes: int = 16 * 1024 * 1024
    memtable_entries: int = 65_536
    memtable_bytes: int = 32 * 1024 * 1024
    replayed_offsets: int = 262_144
    """Offsets a restart may have to read again before memory is written out."""
    close_slots: int = 60
    """Passed slots that wait before their files are looked at for compaction."""
    load_ahead_slots: int = 2
    slice_bytes: int = 2 * 1024 * 1024
    """Body bytes written in one step."""
    most_names: int = MOST_NAMES
    """So many targets at once are counted by name, and have numbers in the log."""
    body_format: int = 0
    """The caller's version of what bodies mean; fixed when the folder is made."""

    def __post_init__(self) -> None:
        if self.precision_ms < 1 or self.slots < 2:
            raise ValueError("a wheel needs precision_ms >= 1 and at least 2 slots")
        if self.most_names > MOST_NUMBERS:
            raise ValueError(f"most_names must be at most {MOST_NUMBERS}: the log has two bytes")
        if self.segment_bytes < 8 * RECORD_BYTES:
            raise ValueError("segment_bytes must hold at least 8 records")

    @property
    def run_records(self) -> int:
        """Most records in one block: it fits a segment even with one run each."""
        return self.segment_bytes // (2 * RECORD_BYTES)

    def bound(self) -> dict[str, int]:
        """Return the parameters that shape the files. A folder opens only with the same ones."""
        return {
            "precision_ms": self.precision_ms,
            "slots": self.slots,
            "segment_bytes": self.segment_bytes,
            "body_format": self.body_format,
        }


# The numbers a register is run with; none of them shapes its files.


@dataclass(frozen=True, slots=True)
class IdOptions:
    """Bounds on memory and on the work of one step. None of them shapes the files.

    A register keeps up to twice the `memtable_*` bounds, and what waits to be settled."""

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
