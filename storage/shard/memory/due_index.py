"""Entries in memory as the tuples given, found by their due millisecond."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from storage.shard.memory.due_histogram import DueHistogram
from storage.store import LAST_OFFSET, Entry, Key, Scanned, Wants

LOOKED_AT = 4096
"""Entries that one `scan` looks at, and those of one millisecond more."""

_offset_of = itemgetter(1)


class DueIndex:
    """Milliseconds up to `scanned_ms` with entries are listed in order in `_ready`; later ones are
    found when the scan reaches them, so that `add` costs one dict look-up an entry."""

    def __init__(self, scanned_ms: int) -> None:
        self.scanned_ms = scanned_ms
        self._by_due: dict[int, list[Entry]] = {}
        self._ready: list[int] = []

    def add(self, entries: list[Entry]) -> None:
        """Take `entries`; those of one due in ingress offset order."""
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

    def peek(self, until_ms: int, max_entries: int) -> list[Entry]:
        """The first `max_entries` entries due at or before `until_ms`."""
        self._scan(until_ms)
        found: list[Entry] = []
        for due_ms in self._ready:
            if due_ms > until_ms or len(found) >= max_entries:
                break
            found += self._by_due[due_ms][: max_entries - len(found)]
        return found

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due at or before `until_ms`."""
        self._scan(until_ms)
        if self._ready and self._ready[0] <= until_ms:
            return self._ready[0]
        return None

    def pop_ended(self, ended: Key) -> list[Entry]:
        """Remove and give every entry at or below `ended`."""
        watermark_ms, cursor = ended
        self._scan(watermark_ms)
        ready = self._ready
        found: list[Entry] = []
        if not ready or ready[0] > watermark_ms:
            return found
        passed = bisect_left(ready, watermark_ms)
        for due_ms in ready[:passed]:
            found += self._by_due.pop(due_ms)
        del ready[:passed]
        if ready and ready[0] == watermark_ms:
            found += self._pop_at(watermark_ms, cursor)
        return found

    def count_dues(self, histogram: DueHistogram) -> None:
        """Add when the entries are due to `histogram`."""
        by_due = self._by_due
        dues_ms = np.fromiter(by_due, np.int64, len(by_due))
        histogram.add(dues_ms, np.fromiter(map(len, by_due.values()), np.int64, len(by_due)))

    def scan(self, after: Key, until_ms: int, wants: Wants, max_entries: int) -> Scanned:
        """The first wanted entries beyond `after`, of some milliseconds in a row."""
        found: list[Entry] = []
        looked_at, first_ms = 0, after[0] + (after[1] >= LAST_OFFSET)
        for due_ms in sorted(ms for ms in self._by_due if first_ms <= ms <= until_ms):
            if looked_at >= LOOKED_AT or len(found) >= max_entries:
                return Scanned(found, (due_ms - 1, LAST_OFFSET))
            same = self._by_due[due_ms]
            looked_at += len(same)
            if due_ms == after[0]:
                same = same[bisect_right(same, after[1], key=_offset_of) :]
            found += same if wants is None else [entry for entry in same if wants(entry[2])]
        return Scanned(found, (until_ms, LAST_OFFSET))

    def batches(self, most_entries: int) -> Iterator[list[Entry]]:
        """The entries in due order, `most_entries` at a time.

        Entries may end between two batches; those are left out or harmlessly included."""
        dues_ms = np.fromiter(self._by_due, np.int64, len(self._by_due))
        dues_ms.sort()
        waiting: list[Entry] = []
        for due_ms in dues_ms.tolist():
            waiting += self._by_due.get(due_ms, ())
            while len(waiting) >= most_entries:
                yield waiting[:most_entries]
                del waiting[:most_entries]
        if waiting:
            yield waiting

    def _pop_at(self, due_ms: int, cursor: int) -> list[Entry]:
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
