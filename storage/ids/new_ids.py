"""Ids that have been written once, each with an entry that is delivered as it was written."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from storage.ids.runs.bloom_filter import BloomFilter, bits_of, filter_power
from storage.ids.runs.idents import Idents, Words, gathered, texts
from storage.ids.runs.layout import NO_TOMBSTONES, ROW, Rows, RunContents
from storage.register import Named
from storage.store import Column

FILTER_BITS: Final = 64
"""For each id that it has room for: with so many here, of 1,024 others one passes."""
FILTER_GROWTH: Final = 4
FIRST_ROOM: Final = 4096
COMPARED: Final = 16
"""So many hashes at most are looked for one by one."""


class _Part(NamedTuple):
    """What came together, as columns; the offsets rise from part to part."""

    idents: Idents
    fires_ms: Column
    offsets: Column
    targets: Column


class NewIds:
    """Columns in the order of the offsets, of which no two are the same. `targets`: every target
    met. That most ids are never asked for again is what it is made for: only once one has been
    are they indexed by name."""

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
        """What the hashes and their filter take, which have room for more."""
        return self._hashes.nbytes + (0 if self._filter is None else self._filter.words.nbytes)

    def add(
        self,
        idents: Idents,
        hashes: Words,
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> None:
        """Append ids, whose hashes are given, at rising offsets; each names its own entry."""
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
        """Whether an id with one of these hashes is here. True, too, if there seem to be many."""
        if self._filter is None:
            return False
        passing = hashes[self._filter.passing(hashes, bits)]
        if passing.size > COMPARED:
            return True
        column = self._hashes[: self._count]
        return any((column == one).any() for one in passing)

    def find(self, asked: Sequence[bytes], hashes: Words) -> dict[bytes, Named]:
        """What is known of those of `asked`, whose hashes are given, that are here."""
        if not self.has_any(hashes, bits_of(hashes)):
            return {}
        self._index()
        places = self._places
        return {ident: self._named(places[ident]) for ident in asked if ident in places}

    def contents(self, numbers: Mapping[str, int], found: list[RunContents]) -> Iterator[None]:
        """Append them all, in two steps; `numbers` are those of the targets."""
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
        """Index what has come since the last time."""
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
        """Where each id begins in the words of all parts."""
        words = np.array([part.idents.words.size for part in self._parts])
        starts = [part.idents.starts for part in self._parts]
        bases = np.repeat(np.cumsum(words) - words, [part.size for part in starts])
        found: Column = np.concatenate(starts) + bases
        return found


def _rising(offsets: Sequence[int]) -> Column:
    """They mostly follow one another."""
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return np.arange(first, last + 1)
    return np.fromiter(offsets, np.int64, len(offsets))
