"""Ids that have been written once, each with an entry that is delivered as it was written."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from storage.ids.idents import Hashed, Idents
from storage.ids.layout import ROW, Contents, in_hash_order
from storage.records import Rows
from storage.register import Named


class NewIds:
    """Columns in the order of the offsets, of which no two are the same; `offsets` are by id.

    `targets`: every target met."""

    def __init__(self) -> None:
        self.offsets: dict[bytes, int] = {}
        self._column = array("q")
        self._fires_ms = array("q")
        self.targets: list[str] = []
        self._numbers: dict[str, int] = {}
        self._targets = array("q")
        self._hashed: list[Hashed] = []

    def add(
        self,
        hashed: Hashed,
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> None:
        """Append ids; see `Register.put_new`."""
        self.offsets.update(zip(hashed.ids, offsets, strict=True))
        self._column.extend(offsets)
        self._fires_ms.extend(fires_ms)
        numbers = self._numbers
        for target in set(targets).difference(numbers):
            numbers[target] = len(numbers)
            self.targets.append(target)
        self._targets.extend(map(numbers.__getitem__, targets))
        self._hashed.append(hashed._replace(ids=()))

    def named(self, ident: bytes) -> Named:
        """What is known of one of `offsets`."""
        offset = self.offsets[ident]
        place = bisect_left(self._column, offset)
        fires_ms = self._fires_ms[place]
        target = self.targets[self._targets[place]]
        return Named(offset, fires_ms, offset, offset, fires_ms, target)

    def contents(self, numbers: Mapping[str, int], found: list[Contents]) -> Iterator[None]:
        """Append them all, in two steps; `numbers` are those of the targets."""
        rows = self._rows(numbers)
        words = np.concatenate([hashed.idents.words for hashed in self._hashed])
        yield
        hashes = np.concatenate([hashed.hashes for hashed in self._hashed])
        found.append(in_hash_order(hashes, rows, words))

    def _rows(self, numbers: Mapping[str, int]) -> Rows:
        rows = np.zeros(len(self._column), ROW)
        rows["fires_ms"] = rows["due_ms"] = self._fires_ms
        rows["latest"] = rows["offset"] = rows["origin"] = self._column
        named = np.fromiter(map(numbers.__getitem__, self.targets), np.int64)
        rows["target"] = named[np.frombuffer(self._targets, np.int64)]
        first = 0
        for start, end, idents in self._batches():
            rows["word"][start:end] = idents.starts + first
            rows["size"][start:end] = idents.sizes
            first += idents.words.size
        return rows

    def _batches(self) -> Iterator[tuple[int, int, Idents]]:
        start = 0
        for hashed in self._hashed:
            end = start + hashed.hashes.size
            yield start, end, hashed.idents
            start = end
