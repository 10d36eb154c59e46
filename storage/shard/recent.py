"""Entries not yet on disk, as the tuples given, ready in (due, offset) order."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from storage.shard.counts import Counts
from storage.shard.due_histogram import Spread
from storage.store import Entry

ENTRY_BYTES = 300
"""About what an entry takes in memory beside its body: tuple, numbers, its place in the table."""

_offset_of = itemgetter(1)
_body_of = itemgetter(3)


class Recent:
    """One table of entries by due millisecond.

    Milliseconds up to `scanned_ms` with entries are listed in order in `_ready`; later ones are
    found when the scan reaches them, so that `put` costs one dict look-up an entry."""

    def __init__(self, scanned_ms: int) -> None:
        self.scanned_ms = scanned_ms
        self.first_offset: int | None = None
        self.last_offset = -1
        self.weight_bytes = 0
        self.counts = Counts()
        self._by_due: dict[int, list[Entry]] = {}
        self._ready: list[int] = []

    def __len__(self) -> int:
        return self.counts.total

    def put(self, entries: list[Entry]) -> None:
        """Take `entries`, in ingress offset order."""
        self._note(entries)
        self._index(entries)

    def _note(self, entries: list[Entry]) -> None:
        if self.first_offset is None:
            self.first_offset = entries[0][1]
        self.last_offset = entries[-1][1]
        self.weight_bytes += ENTRY_BYTES * len(entries) + sum(map(len, map(_body_of, entries)))
        self.counts.add(entries)

    def _index(self, entries: list[Entry]) -> None:
        by_due = self._by_due
        get = by_due.get
        scanned_ms = self.scanned_ms
        for entry in entries:
            due_ms = entry[0]
            same = get(due_ms)
            if same is not None:
                same.append(entry)
                continue
            by_due[due_ms] = [entry]
            if due_ms <= scanned_ms:
                insort(self._ready, due_ms)

    def peek(self, until_ms: int, limit: int) -> list[Entry]:
        """The first `limit` entries due at or before `until_ms`."""
        self._scan(until_ms)
        found: list[Entry] = []
        for due_ms in self._ready:
            if due_ms > until_ms or len(found) >= limit:
                break
            found += self._by_due[due_ms][: limit - len(found)]
        return found

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due at or before `until_ms`."""
        self._scan(until_ms)
        if self._ready and self._ready[0] <= until_ms:
            return self._ready[0]
        return None

    def forget(self, watermark_ms: int, cursor: int) -> None:
        """Drop every entry at or below (watermark_ms, cursor)."""
        self._scan(watermark_ms)
        ready = self._ready
        if not ready or ready[0] > watermark_ms:
            return
        passed = bisect_left(ready, watermark_ms)
        ended: list[Entry] = []
        for due_ms in ready[:passed]:
            ended += self._by_due.pop(due_ms)
        del ready[:passed]
        if ready and ready[0] == watermark_ms:
            ended += self._forget_at(watermark_ms, cursor)
        if ended:
            self.weight_bytes -= self.weight_bytes * len(ended) // len(self)
            self.counts.remove(ended)
        if not len(self):
            self.first_offset = None

    def spread_into(self, spread: Spread) -> None:
        """Count when the entries are due."""
        by_due = self._by_due
        dues_ms = np.fromiter(by_due, np.int64, len(by_due))
        spread.add(dues_ms, np.fromiter(map(len, by_due.values()), np.int64, len(by_due)))

    def dues_in_order(self) -> list[int]:
        """Every due millisecond with entries, ascending."""
        dues_ms = np.fromiter(self._by_due, np.int64, len(self._by_due))
        dues_ms.sort()
        ordered: list[int] = dues_ms.tolist()
        return ordered

    def slices(self, dues_ms: list[int], most_entries: int) -> Iterator[list[Entry]]:
        """What is left of the table at `dues_ms`, in that order, `most_entries` at a time.

        Entries may end between two slices; those are left out or harmlessly included."""
        waiting: list[Entry] = []
        for due_ms in dues_ms:
            waiting += self._by_due.get(due_ms, ())
            while len(waiting) >= most_entries:
                yield waiting[:most_entries]
                del waiting[:most_entries]
        if waiting:
            yield waiting

    def _forget_at(self, due_ms: int, cursor: int) -> list[Entry]:
        same = self._by_due[due_ms]
        ended = same[: bisect_right(same, cursor, key=_offset_of)]
        if len(ended) == len(same):
            del self._by_due[due_ms], self._ready[0]
        else:
            del same[: len(ended)]
        return ended

    def _scan(self, until_ms: int) -> None:
        start_ms = self.scanned_ms
        if until_ms <= start_ms:
            return
        by_due = self._by_due
        if until_ms - start_ms <= len(by_due):
            self._ready += [ms for ms in range(start_ms + 1, until_ms + 1) if ms in by_due]
        elif by_due:
            self._ready += sorted(ms for ms in by_due if start_ms < ms <= until_ms)
        self.scanned_ms = until_ms
