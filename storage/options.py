"""Options of stores and id registers."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

MOST_NAMES: Final = 10_000
"""Default of `most_names`. Most clusters have fewer topics."""

StoreKind: TypeAlias = Literal["wheel", "rocksdb"]
"""The kinds of store, chosen by the proxy's setting `store`."""

KINDS: Final[tuple[StoreKind, ...]] = get_args(StoreKind)
RECORD_BYTES = 32
SLOT_BYTES: Final = 24
MOST_NUMBERS: Final = 2**16 - 1
"""Largest `most_names`. A target's number has two bytes in the log. 2^16 - 1 means no number."""


def new_store_bytes(kind: StoreKind, slots: int) -> int:
    """Return the disk space that a new store takes at once. The file of a wheel never grows."""
    return slots * SLOT_BYTES if kind == "wheel" else 0


@dataclass(frozen=True, slots=True)
class Options:
    """Shape of wheel and log, and memory limits.

    A store may use twice the `memtable_*` limits: one memtable fills while another is written."""

    precision_ms: int = 1000
    """Time that one slot covers. Fixed when the folder is made."""
    slots: int = 7 * 86_400
    """Slots of the wheel. Fixed when the folder is made."""
    segment_bytes: int = 16 * 1024 * 1024
    """Size of a segment of the log. Fixed when the folder is made."""
    memtable_entries: int = 65_536
    memtable_bytes: int = 32 * 1024 * 1024
    replayed_offsets: int = 262_144
    """The memtable is written if a restart would read this many ingress offsets again."""
    close_slots: int = 60
    """Compaction begins when the watermark has passed this many slots since the last compaction."""
    load_ahead_slots: int = 2
    """Slots are loaded this many slots before their time."""
    slice_bytes: int = 2 * 1024 * 1024
    """Body bytes written in one step."""
    most_names: int = MOST_NAMES
    """At most this many targets are counted by name at a time."""
    body_format: int = 0
    """Version of the caller's body encoding. Fixed when the folder is made."""

    def __post_init__(self) -> None:
        if self.precision_ms < 1 or self.slots < 2:
            raise ValueError("a wheel needs precision_ms >= 1 and at least 2 slots")
        if self.most_names > MOST_NUMBERS:
            raise ValueError(f"most_names must be at most {MOST_NUMBERS}, the log's largest number")
        if self.segment_bytes < 8 * RECORD_BYTES:
            raise ValueError("segment_bytes must hold at least 8 records")

    @property
    def run_records(self) -> int:
        return self.segment_bytes // (2 * RECORD_BYTES)

    def bound(self) -> dict[str, int]:
        """Return the options that shape the files. A folder opens only with the same values."""
        return {
            "precision_ms": self.precision_ms,
            "slots": self.slots,
            "segment_bytes": self.segment_bytes,
            "body_format": self.body_format,
        }


@dataclass(frozen=True, slots=True)
class IdOptions:
    """Limits of a register. They do not shape the files.

    A register uses up to twice the `memtable_*` limits."""

    memtable_entries: int = 32_768
    memtable_bytes: int = 2 * 1024 * 1024
    """Bytes of ids in a memtable. Python needs another 100 to 350 bytes for each id."""
    replayed_offsets: int = 65_536
    """The memtable is written if a restart would read this many ingress offsets again."""
    few_ids: int = 32
    """`put_if_new` stores its ids as arrays if one call has at least this many."""
    write_entries: int = 4_096
    """Ids converted to columns in one step."""
    merge_entries: int = 8_192
    """Rows merged in one step."""
    merged_runs: int = 8
    """A merge joins at least this many runs. Joining fewer would copy rows more often."""
    most_names: int = MOST_NAMES
    """At most this many targets are counted by name at a time."""
    most_runs: int = 64
    """At this number of runs, a flush waits for a merge."""

    def __post_init__(self) -> None:
        if not 2 <= self.merged_runs <= self.most_runs:
            raise ValueError("merged_runs must be at least 2 and at most most_runs")
        if min(self.memtable_entries, self.write_entries, self.merge_entries) < 1:
            raise ValueError("memtables and steps must hold at least 1 entry")
