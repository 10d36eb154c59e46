"""New changes, in memory until all of them are settled."""

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

import numpy as np

from storage.ids.buried import RecentlyBuried, in_order
from storage.ids.idents import Hashing, Words, gathered, padded
from storage.ids.layout import ROW, Buried, Contents, joined, taken
from storage.records import Rows
from storage.register import Named

NO_WORDS = np.zeros(0, np.uint64)


class Table:
    """Changes caused by ingress offsets from `first` to `last`; -1 while there is none."""

    def __init__(self) -> None:
        self.first = -1
        self.last = -1
        self.ids: dict[bytes, Named] = {}
        self.ident_bytes = 0
        self.buried = RecentlyBuried()
        self.links: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.ids) + len(self.buried.targets) + len(self.links)

    def contents(self, hashing: Hashing, most_rows: int, found: list[Contents]) -> Iterator[None]:
        """Make the table, which changes no more, into `found[0]`, in steps."""
        numbers = self._numbers()
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
        buried = in_order(self.buried.targets, numbers)
        yield
        found.append(
            _sorted(
                np.concatenate(hashes), joined(rows), np.concatenate(words), buried, list(numbers)
            )
        )

    def dismantle(self, most_entries: int) -> Iterator[None]:
        """Give the memory back, in steps: tens of thousands of ids at once take 10 ms."""
        while self.ids:
            yield
            for ident in list(islice(self.ids, most_entries)):
                del self.ids[ident]

    def _numbers(self) -> dict[str, int]:
        names = set(map(itemgetter(5), self.ids.values())) | set(self.buried.targets.values())
        return {name: number for number, name in enumerate(sorted(names))}


def _rows(known: list[Named], numbers: dict[str, int]) -> Rows:
    rows = np.zeros(len(known), ROW)
    for place, name in enumerate(Named._fields):
        column = map(itemgetter(place), known)
        numeric = map(numbers.__getitem__, column) if name == "target" else column
        rows[name] = np.fromiter(numeric, np.int64, len(known))
    return rows


def _sorted(hashes: Words, rows: Rows, words: Words, buried: Buried, names: list[str]) -> Contents:
    order = np.argsort(hashes)
    ordered = taken(rows, order)
    idents = gathered(words, ordered["word"], ordered["size"].astype(np.int64))
    ordered["word"] = idents.starts
    return Contents(hashes[order], ordered, idents.words, buried, names)
