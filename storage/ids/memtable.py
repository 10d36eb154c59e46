"""Changes of ids in memory: new ids, tombstones, and links (offsets where no floor may lie)."""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import count, islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from storage.counts import TargetCounter, TargetNumbers
from storage.ids.layout import (
    NO_TOMBSTONES,
    ROW,
    BloomFilter,
    Hashing,
    Idents,
    Rows,
    RunContents,
    TombstoneColumns,
    Words,
    bits_of,
    filter_power,
    gathered,
    in_hash_order,
    joined,
    padded,
    texts,
)
from storage.ids.runs import Run
from storage.store import Column, Key, Named

Link: TypeAlias = tuple[int, int, int]
"""(low, high, until_ms): no floor may lie in (low, high] until the watermark passes `until_ms`."""

FOREVER_MS: Final = 2**63 - 1
MOST_INTERVALS: Final = 256
"""Largest number of intervals with one end time. All of them take about 7 KB in the manifest."""
FINEST_BITS, COARSEST_BITS, SPAN_BITS = 10, 28, 3
"""End times are rounded up in steps of 1/8 to 1/4 of the time left. A step is 1 s to 3 days."""


class Intervals:
    """Disjoint, ascending intervals (low, high] of offsets where no floor may lie.

    Above MOST_INTERVALS, close intervals are joined. This may lower a floor, which is safe."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def __len__(self) -> int:
        return len(self._lows)

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._lows, self._highs, strict=True))

    def add(self, low: int, high: int) -> None:
        if low >= high:
            return
        first, end = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if first < end:
            low, high = min(low, self._lows[first]), max(high, self._highs[end - 1])
        self._lows[first:end], self._highs[first:end] = [low], [high]
        if len(self._lows) > MOST_INTERVALS:
            self._join_nearest()

    def lowered(self, floor: int) -> int:
        at = bisect_left(self._highs, floor)
        is_forbidden = at < len(self._lows) and self._lows[at] < floor
        return self._lows[at] if is_forbidden else floor

    def forget(self, floor: int) -> None:
        passed = bisect_left(self._highs, floor)
        del self._lows[:passed], self._highs[:passed]

    def _join_nearest(self) -> None:
        gaps = np.array(self._lows[1:]) - np.array(self._highs[:-1])
        joined = np.zeros(gaps.size, np.bool_)
        joined[np.argsort(gaps, kind="stable")[: MOST_INTERVALS // 8]] = True
        self._lows = np.array(self._lows)[np.concatenate(([True], ~joined))].tolist()
        self._highs = np.array(self._highs)[np.concatenate((~joined, [True]))].tolist()


class Links:
    """Intervals by end time (`until_ms`). End times are rounded, so that many are equal."""

    def __init__(self, links: Iterable[Link] = ()) -> None:
        self._by_end_ms: dict[int, Intervals] = {}
        for link in links:
            self.add(link)

    def __len__(self) -> int:
        return sum(map(len, self._by_end_ms.values()))

    def all(self) -> list[Link]:
        ends = self._by_end_ms.items()
        return [(low, high, end_ms) for end_ms, each in ends for low, high in each.pairs()]

    def add(self, link: Link) -> None:
        low, high, until_ms = link
        self._by_end_ms.setdefault(until_ms, Intervals()).add(low, high)

    def lowered(self, floor: int) -> int:
        every = self._by_end_ms.values()
        while (lower := min((each.lowered(floor) for each in every), default=floor)) < floor:
            floor = lower
        return floor

    def forget(self, floor: int, ended_ms: int) -> None:
        for end_ms, each in list(self._by_end_ms.items()):
            each.forget(floor)
            if end_ms < ended_ms or not each:
                del self._by_end_ms[end_ms]


def rounded_end_ms(until_ms: int | None, ended_ms: int) -> int:
    """Round `until_ms` up to a time that many links share."""
    if until_ms is None:
        return FOREVER_MS
    bits = (until_ms - ended_ms).bit_length() - SPAN_BITS
    width_ms = 1 << min(max(bits, FINEST_BITS), COARSEST_BITS)
    return -(-until_ms // width_ms) * width_ms


FILTER_BITS: Final = 64
"""Filter bits for each id of a full filter. A full filter passes 1 of 1,024 unknown ids."""
FILTER_GROWTH: Final = 4
FIRST_ROOM: Final = 4096
COMPARED: Final = 16
"""If more hashes than this pass the filter, `has_any` is True without comparing them."""


class _Part(NamedTuple):
    idents: Idents
    fires_ms: Column
    offsets: Column
    targets: Column


class NewIds:
    """Ids that were new when they were put, in offset order. The first lookup builds an index."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self._numbers: dict[str, int] = {}
        self._parts: list[_Part] = []
        self._starts: list[int] = []
        self._hashes = np.empty(FIRST_ROOM, np.uint64)
        self._filter: BloomFilter | None = None
        self._filter_room = 0
        self._count = self._indexed_parts = 0
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def arrays_bytes(self) -> int:
        return self._hashes.nbytes + (0 if self._filter is None else self._filter.words.nbytes)

    def add(
        self,
        idents: Idents,
        hashes: Words,
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> None:
        part = _Part(
            idents,
            np.fromiter(fires_ms, np.int64, hashes.size),
            _rising(offsets),
            self._numbered(targets),
        )
        self._parts.append(part)
        self._starts.append(self._count)
        self._note(hashes)

    def has_any(self, hashes: Words, bits: Words) -> bool:
        if self._filter is None:
            return False
        passing = hashes[self._filter.passing(hashes, bits)]
        if passing.size > COMPARED:
            return True
        column = self._hashes[: self._count]
        return any((column == one).any() for one in passing)

    def find(self, asked: Sequence[bytes], hashes: Words) -> dict[bytes, Named]:
        if not self.has_any(hashes, bits_of(hashes)):
            return {}
        self._index()
        places = self._places
        return {ident: self._named(places[ident]) for ident in asked if ident in places}

    def contents(self, numbers: Mapping[str, int], found: list[RunContents]) -> Iterator[None]:
        order = np.argsort(self._hashes[: self._count])
        rows = self._rows(numbers, order)
        yield
        words = np.concatenate([part.idents.words for part in self._parts])
        sizes = np.concatenate([part.idents.sizes for part in self._parts])[order]
        idents = gathered(words, self._first_words()[order], sizes)
        rows["word"], rows["size"] = idents.starts, sizes
        hashes = self._hashes[: self._count][order]
        found.append(RunContents(hashes, rows, idents.words, NO_TOMBSTONES, []))

    def _numbered(self, targets: Sequence[str]) -> Column:
        numbers = self._numbers
        met = set(targets)
        for target in met.difference(numbers):
            numbers[target] = len(numbers)
            self.targets.append(target)
        if len(met) == 1:
            return np.full(len(targets), numbers[targets[0]], np.int64)
        return np.fromiter(map(numbers.__getitem__, targets), np.int64, len(targets))

    def _note(self, hashes: Words) -> None:
        end = self._count + hashes.size
        if self._filter is None or end > self._filter_room:
            self._filter_room = FILTER_GROWTH * end
            self._filter = BloomFilter.empty(filter_power(self._filter_room, FILTER_BITS))
            self._filter.add(self._hashes[: self._count])
        self._filter.add(hashes)
        if end > self._hashes.size:
            grown = np.empty(max(end, 2 * self._hashes.size), np.uint64)
            grown[: self._count] = self._hashes[: self._count]
            self._hashes = grown
        self._hashes[self._count : end] = hashes
        self._count = end

    def _index(self) -> None:
        for number in range(self._indexed_parts, len(self._parts)):
            ids = texts(self._parts[number].idents)
            self._places.update(zip(ids, count(self._starts[number]), strict=False))
        self._indexed_parts = len(self._parts)

    def _named(self, place: int) -> Named:
        number = bisect_right(self._starts, place) - 1
        part, row = self._parts[number], place - self._starts[number]
        offset, fires_ms = int(part.offsets[row]), int(part.fires_ms[row])
        target = self.targets[int(part.targets[row])]
        return Named(offset, fires_ms, offset, offset, fires_ms, target)

    def _rows(self, numbers: Mapping[str, int], order: Column) -> Rows:
        rows = np.zeros(self._count, ROW)
        named = np.fromiter(map(numbers.__getitem__, self.targets), np.int64, len(self.targets))
        _idents, fires_ms, offsets, targets = zip(*self._parts, strict=True)
        rows["fires_ms"] = rows["due_ms"] = np.concatenate(fires_ms)[order]
        rows["latest"] = rows["offset"] = rows["origin"] = np.concatenate(offsets)[order]
        rows["target"] = named[np.concatenate(targets)[order]]
        return rows

    def _first_words(self) -> Column:
        words = np.array([part.idents.words.size for part in self._parts])
        starts = [part.idents.starts for part in self._parts]
        bases = np.repeat(np.cumsum(words) - words, [part.size for part in starts])
        found: Column = np.concatenate(starts) + bases
        return found


def _rising(offsets: Sequence[int]) -> Column:
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return np.arange(first, last + 1)
    return np.fromiter(offsets, np.int64, len(offsets))


NEVER: Key = (2**63 - 1, 2**63 - 1)
COUNTED_AT_ONCE = 16_384


class MemtableTombstones:
    """The tombstones of one memtable."""

    def __init__(self) -> None:
        self.targets: dict[Key, str] = {}
        self._near: list[Key] = []
        """Sorted keys up to `_asked`, which is the highest key that was looked up."""
        self._far: list[Key] = []
        """Keys beyond `_asked`, as a heap."""
        self._asked: Key = (-1, -1)

    @property
    def next(self) -> Key:
        if self._near:
            return self._near[0]
        return self._far[0] if self._far else NEVER

    def add(self, key: Key, target: str) -> bool:
        """Add a key. Return False if it was there before."""
        if key in self.targets:
            return False
        self.targets[key] = target
        if key <= self._asked:
            insort(self._near, key)
        else:
            heapq.heappush(self._far, key)
        return True

    def between(self, after: Key, upto: Key) -> list[Key]:
        if upto > self._asked:
            self._asked = upto
            while self._far and self._far[0] <= upto:
                self._near.append(heapq.heappop(self._far))
        near = self._near
        return near[bisect_right(near, after) : bisect_right(near, upto)]

    def end(self, ended: Key) -> Counter[str]:
        gone = self.between((-1, -1), ended)
        del self._near[: len(gone)]
        return Counter(map(self.targets.pop, gone))


class Tombstones:
    """All tombstones beyond the watermark, in memtables and runs, counted by target."""

    def __init__(self, ended: Key, most_names: int) -> None:
        self.by_target = TargetCounter(TargetNumbers({}, most_names))
        self.next: Key = NEVER
        self._ended = ended
        self._memtables: list[MemtableTombstones] = []
        self._runs: list[tuple[Run, int]] = []

    def attach(self, memtables: Iterable[MemtableTombstones], runs: Iterable[Run]) -> None:
        """Replace the memtables and runs. All of them together have the same keys as before."""
        self._memtables = list(memtables)
        holding = [run for run in runs if run.contents.tombstones.offsets.size]
        self._runs = [(run, run.contents.tombstones.upto(self._ended)) for run in holding]
        self._find_next()

    def count(self) -> None:
        for run, place in self._runs:
            for counted in _by_target(run, place, run.contents.tombstones.offsets.size):
                self.by_target.add(counted)

    def add(self, memtable: MemtableTombstones, key: Key, target: str) -> None:
        if key > self._ended and memtable.add(key, target):
            self.by_target.add({target: 1})
            self.next = min(self.next, key)

    def between(self, after: Key, upto: Key) -> set[Key]:
        if upto < self.next:
            return set()
        after = max(after, self._ended)
        found: set[Key] = set()
        for memtable in self._memtables:
            found.update(memtable.between(after, upto))
        for run, _ in self._runs:
            tombstones = run.contents.tombstones
            part = tombstones.part(tombstones.upto(after), tombstones.upto(upto))
            found.update(zip(part.fires_ms.tolist(), part.offsets.tolist(), strict=True))
        return found

    def among(self, keys: Sequence[Key]) -> set[Key]:
        """Return the tombstones among sorted `keys`. Unlike `between`, leaves `_near` unchanged."""
        keys = [key for key in keys if key > self._ended]
        if not keys or keys[-1] < self.next:
            return set()
        tables = [memtable.targets for memtable in self._memtables]
        found = {key for key in keys if any(key in table for table in tables)}
        first, last = (keys[0][0], keys[0][1] - 1), keys[-1]
        offsets = np.fromiter(map(itemgetter(1), keys), np.int64, len(keys))
        for run, _ in self._runs:
            tombstones = run.contents.tombstones
            part = tombstones.part(tombstones.upto(first), tombstones.upto(last))
            hits = np.isin(part.offsets, offsets)
            found.update(
                zip(part.fires_ms[hits].tolist(), part.offsets[hits].tolist(), strict=True)
            )
        return found.intersection(keys)

    def end(self, ended: Key) -> None:
        self._ended = ended
        if ended < self.next:
            return
        for memtable in self._memtables:
            self.by_target.remove(memtable.end(ended))
        for at, (run, place) in enumerate(self._runs):
            beyond = run.contents.tombstones.upto(ended)
            for counted in _by_target(run, place, beyond):
                self.by_target.remove(counted)
            self._runs[at] = run, beyond
        numbers = self.by_target.numbers
        if numbers.wants_release and not self.by_target.others:
            numbers.release(self.by_target.by_name)
        self._find_next()

    def _find_next(self) -> None:
        heads = [memtable.next for memtable in self._memtables]
        for run, place in self._runs:
            if place < run.contents.tombstones.offsets.size:
                heads.append(run.contents.tombstones.key(place))
        self.next = min(heads, default=NEVER)


def _by_target(run: Run, start: int, end: int) -> Iterator[Counter[str]]:
    """Yield counts by target. Each covers a limited number of rows, which bounds memory."""
    for first in range(start, end, COUNTED_AT_ONCE):
        part = run.contents.tombstones.targets[first : min(end, first + COUNTED_AT_ONCE)]
        counted = Counter[str]()
        for number, found in zip(*np.unique(part, return_counts=True), strict=True):
            counted[run.contents.names[int(number)]] += int(found)
        yield counted


def in_order(targets: dict[Key, str], numbers: dict[str, int]) -> TombstoneColumns:
    """Return tombstones as columns, in the order (fire time, offset)."""
    count = len(targets)
    fires_ms = np.fromiter(map(itemgetter(0), targets), np.int64, count)
    offsets = np.fromiter(map(itemgetter(1), targets), np.int64, count)
    found = np.fromiter(map(numbers.__getitem__, targets.values()), np.uint32, count)
    order = np.lexsort((offsets, fires_ms))
    return TombstoneColumns(fires_ms[order], offsets[order], found[order])


NO_WORDS = np.zeros(0, np.uint64)
NEW_ID_BYTES, CHANGE_BYTES, NAME_BYTES = 100, 350, 250
"""Approximate memory of a new id, of another change, and of a target name, without the text."""


class IdMemtable:
    """Changes of ids that are not on disk yet."""

    def __init__(self) -> None:
        self.first = self.last = -1
        """Lowest and highest ingress offset that caused a change, or -1."""
        self.new = NewIds()
        self.ids: dict[bytes, Named] = {}
        """Changed ids. They override `new`."""
        self.text_bytes = 0
        self._names: set[str] = set()
        self.tombstones = MemtableTombstones()
        self.links: list[Link] = []

    def __len__(self) -> int:
        return len(self.new) + len(self.ids) + len(self.tombstones.targets) + len(self.links)

    @property
    def weight_bytes(self) -> int:
        if self.first < 0:
            return 0
        new = len(self.new)
        arrays_bytes = self.new.arrays_bytes if new else 0
        changes_bytes = NEW_ID_BYTES * new + CHANGE_BYTES * (len(self) - new)
        return self.text_bytes + arrays_bytes + changes_bytes

    def put_new(
        self,
        idents: Idents,
        hashes: Words,
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> None:
        self.new.add(idents, hashes, fires_ms, offsets, targets)
        self.text_bytes += int(idents.sizes.sum())
        for target in set(targets):
            self.meet(target)

    def put(self, ident: bytes, named: Named) -> None:
        self.ids[ident] = named
        self.text_bytes += len(ident)
        self.meet(named.target)

    def meet(self, target: str) -> None:
        if target not in self._names:
            self._names.add(target)
            self.text_bytes += len(target) + NAME_BYTES

    def find(self, asked: Sequence[bytes], hashes: Words, found: dict[bytes, Named]) -> None:
        """Add the known ids to `found`. `hashes` are needed only if `new` is not empty."""
        if self.new:
            found.update(self.new.find(asked, hashes))
        ids = self.ids
        if ids and not ids.keys().isdisjoint(asked):
            found.update((ident, ids[ident]) for ident in asked if ident in ids)

    def has_any(self, asked: Sequence[bytes], hashes: Words, bits: Words) -> bool:
        is_put = bool(self.ids) and not self.ids.keys().isdisjoint(asked)
        return is_put or self.new.has_any(hashes, bits)

    def contents(
        self, hashing: Hashing, most_rows: int, found: list[RunContents]
    ) -> Iterator[None]:
        """Convert an immutable memtable in steps. Add its contents to `found`, oldest first."""
        numbers = self._numbers()
        if self.new:
            yield from self.new.contents(numbers, found)
            yield
        if self.ids or not self.new:
            yield from self._others(numbers, hashing, most_rows, found)
        found[-1] = replace(found[-1], tombstones=in_order(self.tombstones.targets, numbers))
        yield
        found[:] = [replace(contents, names=list(numbers)) for contents in found]

    def free_memory(self, most_entries: int) -> Iterator[None]:
        """Release the memory in steps, because freeing tens of thousands of rows takes 10 ms."""
        self.new = NewIds()
        yield from _emptied(self.ids, self.ids.popitem, most_entries)
        yield from _emptied(self._names, self._names.pop, most_entries)

    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(sorted(self._names))}

    def _others(
        self, numbers: dict[str, int], hashing: Hashing, most_rows: int, found: list[RunContents]
    ) -> Iterator[None]:
        hashes, rows, words, at = [np.zeros(0, np.uint64)], [np.zeros(0, ROW)], [NO_WORDS], 0
        every_id, every_named = iter(self.ids), iter(self.ids.values())
        while ids := list(islice(every_id, most_rows)):
            idents = padded(ids)
            hashes.append(hashing(idents))
            rows.append(_rows(list(islice(every_named, most_rows)), numbers))
            rows[-1]["word"], rows[-1]["size"] = idents.starts + at, idents.sizes
            words.append(idents.words)
            at += idents.words.size
            yield
        found.append(in_hash_order(np.concatenate(hashes), joined(rows), np.concatenate(words)))


def _emptied(held: Sized, pop: Callable[[], object], most: int) -> Iterator[None]:
    while held:
        yield
        for _ in range(min(most, len(held))):
            pop()


def _rows(known: list[Named], numbers: dict[str, int]) -> Rows:
    rows = np.zeros(len(known), ROW)
    for place, name in enumerate(Named._fields):
        column = map(itemgetter(place), known)
        numeric = map(numbers.__getitem__, column) if name == "target" else column
        rows[name] = np.fromiter(numeric, np.int64, len(known))
    return rows
