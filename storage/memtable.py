"""Entries in memory: tuples if they fire soon, else columns."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.counts import UNNAMED, DueHistogram, TargetNumbers, no_counts, offsets_of, resolved
from storage.store import LAST_OFFSET, Column, Entry, Key, Scanned, Wants, dues_of, first_scanned


def count_upto(times_ms: Column, offsets: Column, key: Key) -> int:
    """Count the rows at or below `key`. The rows are sorted by (fires_ms, offset)."""
    below = int(np.searchsorted(times_ms, key[0], "left"))
    same = int(np.searchsorted(times_ms, key[0], "right"))
    return below + int(np.searchsorted(offsets[below:same], key[1], "right"))


def are_beyond(times_ms: Column, offsets: Column, key: Key) -> npt.NDArray[np.bool_]:
    """Return which entries lie beyond the key."""
    beyond: npt.NDArray[np.bool_] = times_ms > key[0]
    beyond |= (times_ms == key[0]) & (offsets > key[1])
    return beyond


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Entries as columns."""

    times_ms: Column
    offsets: Column
    targets: Column
    """Numbers of targets. UNNAMED stands for a target without a number."""
    crcs: Column
    """CRC-32 of each body."""
    bodies: list[bytes]
    """If the target has no number, its name is stored before the body."""

    def __len__(self) -> int:
        return len(self.bodies)

    def taken(self, at: Column) -> "Columns":
        bodies = self.bodies
        return Columns(*self._numbers(at), [bodies[index] for index in at.tolist()])

    def part(self, start: int, stop: int) -> "Columns":
        return Columns(*self._numbers(slice(start, stop)), self.bodies[start:stop])

    def _numbers(self, at: Column | slice) -> tuple[Column, Column, Column, Column]:
        return self.times_ms[at], self.offsets[at], self.targets[at], self.crcs[at]

    def in_time_order(self) -> "Columns":
        return self.taken(np.argsort(self.times_ms, kind="stable"))

    def scan(
        self, names: Mapping[int, str], after: Key, until_ms: int, wants: Wants, max_entries: int
    ) -> Scanned:
        upto: Key = (until_ms, LAST_OFFSET)
        beyond = are_beyond(self.times_ms, self.offsets, after) & (self.times_ms <= until_ms)
        at = np.flatnonzero(beyond)
        if wants is not None:
            met = np.unique(self.targets[at]).tolist()
            wanted = [number for number in met if number == UNNAMED or wants(names[number])]
            at = at[np.isin(self.targets[at], wanted)]
        if at.size > max_entries:
            times_ms = self.times_ms[at]
            at = at[times_ms <= np.partition(times_ms, max_entries - 1)[max_entries - 1]]
            at = at[np.lexsort((self.offsets[at], self.times_ms[at]))][:max_entries]
            upto = int(self.times_ms[at[-1]]), int(self.offsets[at[-1]])
        entries = self.taken(at).entries(names)
        return Scanned([e for e in entries if wants is None or wants(e[2])], upto)

    def entries(self, names: Mapping[int, str]) -> list[Entry]:
        targets, bodies = resolved(names, self.targets, self.bodies)
        times_ms, offsets = self.times_ms.tolist(), self.offsets.tolist()
        return list(zip(times_ms, offsets, targets, bodies, strict=True))


def columns_of(
    entries: Sequence[Entry], numbers: TargetNumbers, times_ms: Column, offsets: Column
) -> Columns:
    """Return entries as columns."""
    targets, bodies = numbers.columns_of(entries)
    crcs = np.fromiter(map(crc32, bodies), np.int64, len(bodies))
    return Columns(times_ms, offsets, targets, crcs, bodies)


def columns_joined(parts: Iterable[Columns]) -> Columns:
    """Concatenate columns."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    empty = [np.zeros(0, np.int64)]
    return Columns(
        np.concatenate([part.times_ms for part in parts] or empty),
        np.concatenate([part.offsets for part in parts] or empty),
        np.concatenate([part.targets for part in parts] or empty),
        np.concatenate([part.crcs for part in parts] or empty),
        [body for part in parts for body in part.bodies],
    )


LOOKED_AT = 4096
"""`DueIndex.scan` stops after the millisecond in which it reaches this number of entries."""

_offset_of = itemgetter(1)


class DueIndex:
    """Entries by firing time. Only times up to `scanned_ms` are sorted, so that `add` is cheap."""

    def __init__(self, scanned_ms: int) -> None:
        self.scanned_ms = scanned_ms
        self._by_time: dict[int, list[Entry]] = {}
        self._ready: list[int] = []

    def add(self, entries: list[Entry]) -> None:
        by_time = self._by_time
        get = by_time.get
        scanned_ms = self.scanned_ms
        for entry in entries:
            fires_ms = entry[0]
            same = get(fires_ms)
            if same is not None:
                same.append(entry)
                continue
            by_time[fires_ms] = [entry]
            if fires_ms <= scanned_ms:
                insort(self._ready, fires_ms)

    def peek(self, until_ms: int, max_entries: int) -> list[Entry]:
        self._scan(until_ms)
        found: list[Entry] = []
        for fires_ms in self._ready:
            if fires_ms > until_ms or len(found) >= max_entries:
                break
            found += self._by_time[fires_ms][: max_entries - len(found)]
        return found

    def next_fires_ms(self, until_ms: int) -> int | None:
        self._scan(until_ms)
        if self._ready and self._ready[0] <= until_ms:
            return self._ready[0]
        return None

    def pop_ended(self, ended: Key) -> list[Entry]:
        watermark_ms, cursor = ended
        self._scan(watermark_ms)
        ready = self._ready
        found: list[Entry] = []
        if not ready or ready[0] > watermark_ms:
            return found
        passed = bisect_left(ready, watermark_ms)
        for fires_ms in ready[:passed]:
            found += self._by_time.pop(fires_ms)
        del ready[:passed]
        if ready and ready[0] == watermark_ms:
            found += self._pop_at(watermark_ms, cursor)
        return found

    def count_dues(self, histogram: DueHistogram) -> None:
        by_time = self._by_time
        times_ms = np.fromiter(by_time, np.int64, len(by_time))
        histogram.add(times_ms, np.fromiter(map(len, by_time.values()), np.int64, len(by_time)))

    def scan(self, after: Key, until_ms: int, wants: Wants, max_entries: int) -> Scanned:
        """Return the first wanted entries beyond `after`, from a few consecutive milliseconds."""
        found: list[Entry] = []
        looked_at, first_ms = 0, after[0] + (after[1] >= LAST_OFFSET)
        for fires_ms in sorted(ms for ms in self._by_time if first_ms <= ms <= until_ms):
            if looked_at >= LOOKED_AT or len(found) >= max_entries:
                return Scanned(found, (fires_ms - 1, LAST_OFFSET))
            same = self._by_time[fires_ms]
            looked_at += len(same)
            if fires_ms == after[0]:
                same = same[bisect_right(same, after[1], key=_offset_of) :]
            found += same if wants is None else [entry for entry in same if wants(entry[2])]
        return Scanned(found, (until_ms, LAST_OFFSET))

    def batches(self, most_entries: int) -> Iterator[list[Entry]]:
        times_ms = np.fromiter(self._by_time, np.int64, len(self._by_time))
        times_ms.sort()
        found: list[Entry] = []
        for fires_ms in times_ms.tolist():
            found += self._by_time.get(fires_ms, ())
            while len(found) >= most_entries:
                yield found[:most_entries]
                del found[:most_entries]
        if found:
            yield found

    def _pop_at(self, fires_ms: int, cursor: int) -> list[Entry]:
        same = self._by_time[fires_ms]
        ended = same[: bisect_right(same, cursor, key=_offset_of)]
        if len(ended) == len(same):
            del self._by_time[fires_ms], self._ready[0]
        else:
            del same[: len(ended)]
        return ended

    def _scan(self, until_ms: int) -> None:
        start_ms = self.scanned_ms
        if until_ms <= start_ms:
            return
        by_time = self._by_time
        if until_ms - start_ms <= len(by_time):
            self._ready += [ms for ms in range(start_ms + 1, until_ms + 1) if ms in by_time]
        elif by_time:
            self._ready += sorted(ms for ms in by_time if start_ms < ms <= until_ms)
        self.scanned_ms = until_ms


NONE_MS = 2**63 - 1
ALL_BYTES = 2**63
NEAR_MS = 1_000
"""Entries before the horizon are tuples. A look-up sets the horizon 1 to 2 s after its time."""
ENTRY_BYTES = 300
"""Approximate memory of an entry, without its body."""


class Memtable:
    """Entries not yet on disk. Beyond the horizon they are columns, which take half the memory."""

    def __init__(self, numbers: TargetNumbers, scanned_ms: int, phase_ms: int = 0) -> None:
        """Create an empty memtable. `phase_ms` makes stores advance horizons at different times."""
        self.first_offset: int | None = None
        self.last_offset = -1
        self.counts = no_counts(numbers)
        self._near = DueIndex(scanned_ms)
        self._numbers = numbers
        self._phase_ms = phase_ms
        self._horizon_ms = self._horizon_beyond(scanned_ms)
        self._fresh: list[Columns] = []
        self._fresh_from_ms = NONE_MS
        self._sorted: list[Columns] = []

    def __len__(self) -> int:
        return self.counts.total

    @property
    def scanned_ms(self) -> int:
        return self._near.scanned_ms

    @property
    def weight_bytes(self) -> int:
        return ENTRY_BYTES * len(self) + self.counts.total_bytes

    def put(self, entries: list[Entry], times_ms: Column) -> None:
        offsets = offsets_of(entries)
        if self.first_offset is None:
            self.first_offset = entries[0][1]
        self.last_offset = entries[-1][1]
        self.counts.add(entries, offsets)
        is_far = times_ms >= self._horizon_ms
        if is_far.all():
            self._keep_far(entries, times_ms, offsets)
        elif is_far.any():
            self._near.add(list(compress(entries, (~is_far).tolist())))
            far = list(compress(entries, is_far.tolist()))
            self._keep_far(far, times_ms[is_far], offsets[is_far])
        else:
            self._near.add(entries)

    def peek(self, until_ms: int, max_entries: int) -> list[Entry]:
        if until_ms >= self._horizon_ms:
            self._move_horizon(until_ms)
        return self._near.peek(until_ms, max_entries)

    def next_fires_ms(self, until_ms: int) -> int | None:
        if until_ms >= self._horizon_ms:
            self._move_horizon(until_ms)
        return self._near.next_fires_ms(until_ms)

    def forget(self, ended: Key) -> None:
        if ended[0] >= self._horizon_ms:
            self._move_horizon(ended[0])
        gone = self._near.pop_ended(ended)
        if gone:
            self.counts.remove(gone)
        if not len(self):
            self.first_offset = None

    def count_dues(self, histogram: DueHistogram) -> None:
        self._near.count_dues(histogram)
        for columns in (*self._sorted, *self._fresh):
            histogram.add(columns.times_ms)

    def scan(self, after: Key, until_ms: int, wants: Wants, max_entries: int) -> Scanned:
        names = self._numbers.by_number
        near = self._near.scan(after, until_ms, wants, max_entries)
        far = [
            columns.scan(names, after, until_ms, wants, max_entries)
            for columns in (columns_joined(self._fresh), *self._sorted)
        ]
        return first_scanned([near, *far], max_entries, ALL_BYTES)

    def to_columns(self, most_entries: int) -> Generator[int, None, Columns]:
        """Yield the size of each step. Return the entries, unordered.

        Entries that end between two steps may be missing."""
        parts = [*self._sorted, *self._fresh]
        for entries in self._near.batches(most_entries):
            parts.append(columns_of(entries, self._numbers, dues_of(entries), offsets_of(entries)))
            yield len(entries)
        return columns_joined(parts)

    def _keep_far(self, entries: list[Entry], times_ms: Column, offsets: Column) -> None:
        self._fresh.append(columns_of(entries, self._numbers, times_ms, offsets))
        self._fresh_from_ms = min(self._fresh_from_ms, int(times_ms.min()))

    def _move_horizon(self, until_ms: int) -> None:
        self._horizon_ms = self._horizon_beyond(until_ms)
        self._bring_near(self._horizon_ms - 1)

    def _horizon_beyond(self, until_ms: int) -> int:
        return ((until_ms - self._phase_ms) // NEAR_MS + 2) * NEAR_MS + self._phase_ms

    def _bring_near(self, until_ms: int) -> None:
        """Turn entries that fire by `until_ms` into tuples, without a look at each later entry."""
        if self._fresh_from_ms <= until_ms:
            self._sorted.append(columns_joined(self._fresh).in_time_order())
            self._fresh, self._fresh_from_ms = [], NONE_MS
        left: list[Columns] = []
        for columns in self._sorted:
            passed = int(np.searchsorted(columns.times_ms, until_ms, "right"))
            if passed:
                self._near.add(columns.part(0, passed).entries(self._numbers.by_number))
                columns = columns.part(passed, len(columns))  # noqa: PLW2901
            if len(columns):
                left.append(columns)
        self._sorted = left
