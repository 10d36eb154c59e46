"""New changes, in memory until all of them are settled."""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import replace
from itertools import islice
from operator import itemgetter

import numpy as np

from storage.ids.links import Link
from storage.ids.new_ids import NewIds
from storage.ids.runs.idents import Hashing, Idents, Words, padded
from storage.ids.runs.layout import ROW, Rows, RunContents, in_hash_order, joined
from storage.ids.tombstones import MemtableTombstones, in_order
from storage.register import Named

NO_WORDS = np.zeros(0, np.uint64)
NEW_ID_BYTES, CHANGE_BYTES, NAME_BYTES = 100, 350, 250
"""About what a new id, any other change, and a name met first take in memory beside the text."""


class IdMemtable:
    """Changes caused by ingress offsets from `first` to `last`; -1 while there is none."""

    def __init__(self) -> None:
        self.first = -1
        self.last = -1
        self.new = NewIds()
        self.ids: dict[bytes, Named] = {}
        """Newer than what `new` has of the same id."""
        self.text_bytes = 0
        """Of ids, and of names of targets met first."""
        self._names: set[str] = set()
        self.tombstones = MemtableTombstones()
        self.links: list[Link] = []

    def __len__(self) -> int:
        return len(self.new) + len(self.ids) + len(self.tombstones.targets) + len(self.links)

    @property
    def weight_bytes(self) -> int:
        """About the memory that is taken."""
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
        """Take ids of which nothing is known, as `NewIds.add` does."""
        self.new.add(idents, hashes, fires_ms, offsets, targets)
        self.text_bytes += int(idents.sizes.sum())
        for target in set(targets):
            self.meet(target)

    def put(self, ident: bytes, named: Named) -> None:
        """Take what is known of an id now."""
        self.ids[ident] = named
        self.text_bytes += len(ident)
        self.meet(named.target)

    def meet(self, target: str) -> None:
        """This name is among those of the memtable's changes."""
        if target not in self._names:
            self._names.add(target)
            self.text_bytes += len(target) + NAME_BYTES

    def find(self, asked: Sequence[bytes], hashes: Words, found: dict[bytes, Named]) -> None:
        """Add to `found`, or replace there, what is known here of the ids asked for.

        `hashes` are theirs, and used only if there are `new` ids here."""
        if self.new:
            found.update(self.new.find(asked, hashes))
        ids = self.ids
        if ids and not ids.keys().isdisjoint(asked):
            found.update((ident, ids[ident]) for ident in asked if ident in ids)

    def has_any(self, asked: Sequence[bytes], hashes: Words, bits: Words) -> bool:
        """Whether anything is, or seems to be, known here of one of the ids asked for; their
        hashes, in any order, and the filter bits of these are given."""
        is_put = bool(self.ids) and not self.ids.keys().isdisjoint(asked)
        return is_put or self.new.has_any(hashes, bits)

    def contents(
        self, hashing: Hashing, most_rows: int, found: list[RunContents]
    ) -> Iterator[None]:
        """Make the memtable, which changes no more, into contents, the older first, in steps."""
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
        """Give the memory back, in steps: tens of thousands of rows at once take 10 ms."""
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
