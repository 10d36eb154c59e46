"""The kinds of store, and the numbers a store is made with."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

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

    A store keeps up to twice the `memtable_*` bounds in memory: one memtable that takes entries
    and one that is being written."""

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
        """Most records written in one block, so that it fits a segment even one run each."""
        return self.segment_bytes // (2 * RECORD_BYTES)

    def bound(self) -> dict[str, int]:
        """The parameters that shape the files: a folder opens only with the same ones."""
        return {
            "precision_ms": self.precision_ms,
            "slots": self.slots,
            "segment_bytes": self.segment_bytes,
            "body_format": self.body_format,
        }
