"""New changes, in memory until all of them are settled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TypeVar

import numpy as np

from storage.ids.buried import RecentlyBuried, in_order
from storage.ids.idents import Hashing, Words, gathered, padded
from storage.ids.layout import ROW, Contents, joined, taken
from storage.records import Rows
from storage.register import Named, New, new_named

NO_WORDS = np.zeros(0, np.uint64)
NONE_BURIED = in_order({}, {})

T = TypeVar("T")


class Table:
    """Changes caused by ingress offsets from `first` to `last`; -1 while there is none."""

    def __init__(self) -> None:
        self.first = -1
        self.last = -1
        self.new: dict[bytes, New] = {}
        self.ids: dict[bytes, Named] = {}
        """Newer than what `new` has of the same id."""
        self.ident_bytes = 0
        self.buried = RecentlyBuried()
        self.links: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.new) + len(self.ids) + len(self.buried.targets) + len(self.links)

    def find(self, asked: Sequence[bytes], found: dict[bytes, Named]) -> None:
        """Add to `found`, or replace there, what is known here of the ids asked for."""
        new, ids = self.new, self.ids
        if not new.keys().isdisjoint(asked):
            found.update((ident, new_named(new[ident])) for ident in asked if ident in new)
        if not ids.keys().isdisjoint(asked):
            found.update((ident, ids[ident]) for ident in asked if ident in ids)

    def contents(self, hashing: Hashing, most_rows: int, found: list[Contents]) -> Iterator[None]:
        """Make the table, which changes no more, into contents, the older first, in steps."""
        numbers = self._numbers()
        if self.new:
            yield from _made(self.new, partial(_new_rows, numbers), hashing, most_rows, found)
        yield from _made(self.ids, partial(_rows, numbers), hashing, most_rows, found)
        found[-1] = replace(found[-1], buried=in_order(self.buried.targets, numbers))
        yield
        found[:] = [replace(contents, names=list(numbers)) for contents in found]

    def dismantle(self, most_entries: int) -> Iterator[None]:
        """Give the memory back, in steps: tens of thousands of ids at once take 10 ms."""
        for known in (self.new, self.ids):
            while known:
                yield
                for ident in list(islice(known, most_entries)):
                    del known[ident]

    def _numbers(self) -> dict[str, int]:
        names = {new[2] for new in self.new.values()} | {known[5] for known in self.ids.values()}
        return {
            name: number
            for number, name in enumerate(sorted(names.union(self.buried.targets.values())))
        }


def _made(
    known: Mapping[bytes, T],
    rows_of: Callable[[list[T]], Rows],
    hashing: Hashing,
    most_rows: int,
    found: list[Contents],
) -> Iterator[None]:
    """Append these ids as contents without buried keys and names."""
    hashes, rows, words, at = [np.zeros(0, np.uint64)], [np.zeros(0, ROW)], [NO_WORDS], 0
    every_id, everything = iter(known), iter(known.values())
    while ids := list(islice(every_id, most_rows)):
        idents = padded(ids)
        hashes.append(hashing(idents))
        rows.append(rows_of(list(islice(everything, most_rows))))
        rows[-1]["word"], rows[-1]["size"] = idents.starts + at, idents.sizes
        words.append(idents.words)
        at += idents.words.size
        yield
    found.append(_sorted(np.concatenate(hashes), joined(rows), np.concatenate(words)))


def _new_rows(numbers: dict[str, int], news: list[New]) -> Rows:
    rows = np.zeros(len(news), ROW)
    rows["fires_ms"] = rows["due_ms"] = np.fromiter(map(itemgetter(0), news), np.int64, len(news))
    rows["latest"] = np.fromiter(map(itemgetter(1), news), np.int64, len(news))
    rows["offset"] = rows["origin"] = rows["latest"]
    targets = map(numbers.__getitem__, map(itemgetter(2), news))
    rows["target"] = np.fromiter(targets, np.int64, len(news))
    return rows


def _rows(numbers: dict[str, int], known: list[Named]) -> Rows:
    rows = np.zeros(len(known), ROW)
    for place, name in enumerate(Named._fields):
        column = map(itemgetter(place), known)
        numeric = map(numbers.__getitem__, column) if name == "target" else column
        rows[name] = np.fromiter(numeric, np.int64, len(known))
    return rows


def _sorted(hashes: Words, rows: Rows, words: Words) -> Contents:
    order = np.argsort(hashes)
    ordered = taken(rows, order)
    idents = gathered(words, ordered["word"], ordered["size"].astype(np.int64))
    ordered["word"] = idents.starts
    return Contents(hashes[order], ordered, idents.words, NONE_BURIED, [])
