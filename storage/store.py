"""What a shard's schedule offers to the pipeline."""

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
"""(due_ms, offset, target, body). What a body means is the caller's business."""

Key: TypeAlias = tuple[int, int]
"""(due_ms, offset): the order in which entries are delivered."""

Column: TypeAlias = npt.NDArray[np.int64]
"""One number for each of many entries."""

Wants: TypeAlias = Callable[[str], bool] | None
"""Whether entries for a target are asked for; None: those for every target are."""

LAST_OFFSET: Final = 2**63 - 1
"""Beyond every offset."""

PEEK_BYTES: Final = 32 * 1024 * 1024
"""Bodies that are peeked at together, unless the caller says how much they may take."""

_due_of = itemgetter(0)
_target_of = itemgetter(2)
_key_of = itemgetter(0, 1)
_body_of = itemgetter(3)


class TargetCounts(NamedTuple):
    """Counts by target: exact for targets in `by_name` (may be 0), one sum for all others.

    If `others` is 0, a target that is not in `by_name` has none."""

    by_name: Mapping[str, int]
    others: int = 0

    @property
    def total(self) -> int:
        return sum(self.by_name.values()) + self.others

    def most(self, target: str) -> int:
        """Return the most that there can be for this target."""
        return self.by_name.get(target, self.others)

    def without(self, part: "TargetCounts") -> "TargetCounts":
        """Return the counts without `part`, which counts some of the same things."""
        known = self.by_name.keys() & part.by_name.keys() if part.others else self.by_name.keys()
        left = {name: self.by_name[name] - part.by_name.get(name, 0) for name in known}
        return TargetCounts(left, self.total - part.total - sum(left.values()))

    def largest(self, most: int) -> "TargetCounts":
        """Keep the `most` targets with the highest counts by name."""
        used = {name: count for name, count in self.by_name.items() if count}
        shown = nsmallest(most, used.items(), key=lambda item: (-item[1], item[0]))
        return TargetCounts(dict(shown), self.total - sum(count for _, count in shown))


NO_COUNTS = TargetCounts({})


class Due(NamedTuple):
    """Due entries, and whether there are no others."""

    entries: list[Entry]
    is_all: bool


class Scanned(NamedTuple):
    """Entries in order. `upto` is the key up to which there are no others of those asked for."""

    entries: list[Entry]
    upto: Key


NOTHING = -1


class Named(NamedTuple):
    """What is known of an id.

    latest: offset of the last record or cancel a producer wrote with it, NOTHING if none is known.
    (fires_ms, offset): key of the entry that it names; `offset` is NOTHING where it names none.
    origin: offset of the ingress record which that entry delivers, due_ms: when that is due.
    kind: 32 bits that mean something to the caller alone.
    """

    latest: int
    fires_ms: int = NOTHING
    offset: int = NOTHING
    origin: int = NOTHING
    due_ms: int = NOTHING
    target: str = ""
    kind: int = 0

    @property
    def key(self) -> Key:
        """Key of the entry that the id names."""
        return self.fires_ms, self.offset


@dataclass(frozen=True, slots=True)
class Committed:
    """The broker's committed offset of the partition (docs/exactly-once.md).

    A folder that covers no more than `distrusted` may hold ended entries and is not used."""

    watermark_ms: int
    cursor: int
    floor: int
    next_offset: int
    distrusted: int = -1


@dataclass(frozen=True, slots=True)
class OpenReport:
    """How a folder was found: `new`, `reopened`, or `put aside` (to `aside`)."""

    state: str
    detail: str = ""
    aside: Path | None = None


class Store(Protocol):
    """The pending entries of one ingress partition, ordered by (due, offset).

    Any call may raise StoreDamaged or StorageUnreadable: open the folder again."""

    @property
    def covered(self) -> int:
        """Every ingress offset below this is reflected on disk. 0 if the store is empty."""
        ...

    @property
    def memtable_bytes(self) -> int:
        """The approximate memory of entries that are not on disk."""
        ...

    @property
    def peeked_bytes(self) -> int:
        """The size of bodies that were peeked at on disk and have not ended."""
        ...

    def put(self, entries: Iterable[Entry]) -> None:
        """Add entries in offset order, each beyond (watermark, cursor).

        Raises ValueError if the order or the watermark is not kept."""
        ...

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        """Peek at the first `max_entries` entries due by `now_ms`, in (due, offset) order.

        Bodies take at most `max_bytes` together. A larger body comes alone."""
        ...

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """Forget every entry at or below (watermark_ms, cursor): it has ended."""
        ...

    def next_due_ms(self, until_ms: int) -> int | None:
        """Return the earliest due by `until_ms`, if any."""
        ...

    def floor(self, next_offset: int) -> int:
        """Return at most the lowest pending offset, or `next_offset` if nothing pends.

        It may be lower by a bounded chunk."""
        ...

    def pending(self) -> int:
        """Return how many entries pend."""
        ...

    def pending_by_target(self) -> TargetCounts:
        """Count pending entries by target, a bounded number by name."""
        ...

    def pending_bytes(self) -> int:
        """Return the disk space of all pending bodies, written or not."""
        ...

    def pending_bytes_by_target(self) -> TargetCounts:
        """Return the same by target, a bounded number by name."""
        ...

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        """Count pending entries between ascending edges, approximately.

        The first count is up to the first edge, the last one beyond the last edge. Takes
        milliseconds, however many pend."""
        ...

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Look at a bounded number of entries beyond `after` and due by `until_ms`.

        Returns the first wanted ones, perhaps none, of at most `max_entries` and about `max_bytes`.
        `upto` is beyond `after`. It is (until_ms, LAST_OFFSET) once all were looked at. Repeated
        from `upto` on, an entry that pends all the while comes once, whatever is put, written or
        ends meanwhile. What delivery has read ahead stays as it is."""
        ...

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        """Do one bounded piece of work on about `budget_entries` entries. Return whether more
        waits.

        All offsets below `next_offset` are COMMITTED and their pending entries were put here,
        except while the shard is read again after an opening. `covered` never exceeds
        `next_offset`. Raises StorageFull too: work is kept and retried."""
        ...

    def request_flush(self) -> None:
        """Let `maintain` write all entries in memory as soon as they are committed."""
        ...

    def flush(self, next_offset: int) -> None:
        """Write everything below `next_offset` and a checkpoint, for a clean stop.

        Raises as `maintain` does."""
        ...

    def close(self) -> None:
        """Release files and lock. Writes nothing, as in a crash.

        Raises StorageFull, with both released, if a database writes all the same and cannot."""
        ...


def dues_of(entries: Sequence[tuple[Any, ...]]) -> Column:
    """Return the dues of `entries`, their first field, as one array."""
    return np.fromiter(map(_due_of, entries), np.int64, len(entries))


def targets_of(entries: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the targets of `entries`, their third field."""
    return list(map(_target_of, entries))


def bodies_bytes(entries: Iterable[tuple[Any, ...]]) -> int:
    """Return the size of the bodies of `entries`, their last field."""
    return sum(map(len, map(_body_of, entries)))


def first_scanned(parts: Sequence[Scanned], max_entries: int, max_bytes: int) -> Scanned:
    """Merge parts of one scan and cut them to the limits. At least one entry, if any, is kept."""
    upto = min(part.upto for part in parts)
    entries = sorted(
        (entry for part in parts for entry in part.entries if entry[:2] <= upto), key=_key_of
    )
    kept = fitting(entries[:max_entries], max_bytes)
    return Scanned(kept, upto if len(kept) == len(entries) else kept[-1][:2])


def fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """Return as many of the first entries as take at most `max_bytes`, at least one."""
    if bodies_bytes(entries) <= max_bytes:
        return entries
    sizes = accumulate(map(len, map(_body_of, entries)))
    return entries[: max(1, sum(1 for _ in takewhile(max_bytes.__ge__, sizes)))]


def added(parts: Sequence[TargetCounts], most: int = MOST_NAMES) -> TargetCounts:
    """Add counts of different things. Targets that all parts know are counted by name."""
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
