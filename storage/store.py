"""The interface of a shard's store, and its value types."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import accumulate, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.options import MOST_NAMES

Entry: TypeAlias = tuple[int, int, str, bytes]
"""(fires_ms, offset, target, body). The caller encodes the body."""

Key: TypeAlias = tuple[int, int]
"""(fires_ms, offset), in the order of delivery."""

Column: TypeAlias = npt.NDArray[np.int64]
"""One number for each entry or row."""

Wants: TypeAlias = Callable[[str], bool] | None
"""Returns whether entries for a target are wanted. None wants the entries for all targets."""

LAST_OFFSET: Final = 2**63 - 1

PEEK_BYTES: Final = 32 * 1024 * 1024
"""Default limit for the total size of the bodies that one `Store.due` returns."""

_time_of = itemgetter(0)
_target_of = itemgetter(2)
_key_of = itemgetter(0, 1)
_body_of = itemgetter(3)


class TargetCounts(NamedTuple):
    """Counts by target."""

    by_name: Mapping[str, int]
    """Exact count of each named target."""
    others: int = 0
    """Sum of all other targets."""

    @property
    def total(self) -> int:
        return sum(self.by_name.values()) + self.others

    def most(self, target: str) -> int:
        return self.by_name.get(target, self.others)

    def without(self, part: "TargetCounts") -> "TargetCounts":
        """Subtract `part`, the counts of a subset."""
        known = self.by_name.keys() & part.by_name.keys() if part.others else self.by_name.keys()
        left = {name: self.by_name[name] - part.by_name.get(name, 0) for name in known}
        return TargetCounts(left, self.total - part.total - sum(left.values()))

    def largest(self, most: int) -> "TargetCounts":
        """Keep the names of the `most` highest counts. The other counts go into `others`."""
        used = {name: count for name, count in self.by_name.items() if count}
        shown = nsmallest(most, used.items(), key=lambda item: (-item[1], item[0]))
        return TargetCounts(dict(shown), self.total - sum(count for _, count in shown))


NO_COUNTS = TargetCounts({})


class Due(NamedTuple):
    """The first entries that fire by some time, in order."""

    entries: list[Entry]
    is_all: bool
    """No other entry fires by that time."""


class Scanned(NamedTuple):
    """The wanted entries between two keys, in order."""

    entries: list[Entry]
    upto: Key
    """All wanted entries up to this key are in `entries`, or were returned before."""


NOTHING = -1


class Named(NamedTuple):
    """State of an id. An offset that is unknown or missing is NOTHING."""

    latest: int
    """Offset of the last record or cancel with this id that a producer wrote."""
    fires_ms: int = NOTHING
    offset: int = NOTHING
    """Ingress offset of the id's entry."""
    origin: int = NOTHING
    """Ingress offset of the record to deliver. For a commit: the offset of its half message."""
    due_ms: int = NOTHING
    target: str = ""
    kind: int = 0
    """32 bits defined by the caller."""

    @property
    def key(self) -> Key:
        return self.fires_ms, self.offset


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed position of the partition (docs/exactly-once.md#what-is-committed)."""

    watermark_ms: int
    cursor: int
    """Entries at or below (watermark_ms, cursor) have ended."""
    floor: int
    """No lower offset is needed."""
    next_offset: int
    """The next ingress offset to ingest."""
    distrusted: int = -1
    """A folder that covers no higher offset predates the watermark's reset, and is put aside."""


@dataclass(frozen=True, slots=True)
class OpenReport:
    """The state of an opened folder."""

    state: str
    """`new`, `reopened` or `put aside`."""
    detail: str = ""
    """Why the folder was put aside."""
    aside: Path | None = None


class Store(Protocol):
    """The pending entries of one ingress partition, sorted by (fires_ms, offset).

    Any call may raise StoreDamaged or StorageUnreadable. Then open the folder again."""

    @property
    def covered(self) -> int:
        """Records at lower ingress offsets are on disk or have ended."""

    @property
    def memtable_bytes(self) -> int: ...

    @property
    def peeked_bytes(self) -> int: ...

    def put(self, entries: Iterable[Entry]) -> None:
        """Add entries in offset order, beyond (watermark, cursor). Raises ValueError otherwise."""

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        """Return the first entries that fire by `now_ms`. A body above `max_bytes` comes alone."""

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """Drop entries at or below (watermark_ms, cursor), which have ended."""

    def next_fires_ms(self, until_ms: int) -> int | None: ...

    def floor(self, next_offset: int) -> int:
        """Return the lowest offset of an entry, rounded down, or `next_offset` if that is lower."""

    def pending(self) -> int: ...

    def pending_by_target(self) -> TargetCounts: ...

    def pending_bytes(self) -> int:
        """Return the disk space that pending bodies take, or will take when they are written."""

    def pending_bytes_by_target(self) -> TargetCounts: ...

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        """Count pending entries roughly by firing time: before, between and after the edges."""

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Return the first wanted entries beyond `after` that fire by `until_ms`, perhaps none.

        `upto` is beyond `after`. After the last entry it is (until_ms, LAST_OFFSET). Start each
        call at the `upto` of the call before. Then each entry that stays pending is returned once.
        A scan does not change which entries `due` has read ahead."""

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        """Do one bounded step of work. Return whether more work is left.

        Offsets below `next_offset` are committed, and their entries were put. `covered` grows to
        `next_offset` at most. Raises StorageFull if a write fails. The next call writes again."""

    def request_flush(self) -> None: ...

    def flush(self, next_offset: int) -> None:
        """Write the entries below offset `next_offset`, and a checkpoint, for a clean stop."""

    def close(self) -> None:
        """Release files and lock. Then raise StorageFull if RocksDB could not write."""


def dues_of(entries: Sequence[tuple[Any, ...]]) -> Column:
    """Return the fire times of the entries as a column."""
    return np.fromiter(map(_time_of, entries), np.int64, len(entries))


def targets_of(entries: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the targets of `entries`."""
    return list(map(_target_of, entries))


def bodies_bytes(entries: Iterable[tuple[Any, ...]]) -> int:
    """Return the total size of the bodies of `entries`."""
    return sum(map(len, map(_body_of, entries)))


def first_scanned(parts: Sequence[Scanned], max_entries: int, max_bytes: int) -> Scanned:
    """Merge the parts of a scan, within the limits. Keeps at least one entry."""
    upto = min(part.upto for part in parts)
    entries = sorted(
        (entry for part in parts for entry in part.entries if entry[:2] <= upto), key=_key_of
    )
    kept = fitting(entries[:max_entries], max_bytes)
    return Scanned(kept, upto if len(kept) == len(entries) else kept[-1][:2])


def fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """Return the first entries within `max_bytes`, at least one."""
    if bodies_bytes(entries) <= max_bytes:
        return entries
    sizes = accumulate(map(len, map(_body_of, entries)))
    return entries[: max(1, sum(1 for _ in takewhile(max_bytes.__ge__, sizes)))]


def added(parts: Sequence[TargetCounts], most: int = MOST_NAMES) -> TargetCounts:
    """Add counts of disjoint sets. A target that all parts know is counted by name."""
    by_name: Counter[str] = Counter()
    for part in parts:
        by_name.update(part.by_name)
    total = sum(part.total for part in parts)
    for part in parts:
        if part.others:
            unknown = by_name.keys() - part.by_name.keys()
            for name in unknown:
                del by_name[name]
    if len(by_name) > most:
        return TargetCounts(by_name, total - by_name.total()).largest(most)
    return TargetCounts(dict(by_name), total - by_name.total())
