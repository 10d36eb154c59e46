"""Simplest Store, a sorted list. Tests compare the real stores with it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from storage.counts import DueHistogram
from storage.store import (
    LAST_OFFSET,
    PEEK_BYTES,
    Due,
    Entry,
    Key,
    Scanned,
    TargetCounts,
    Wants,
    first_scanned,
    fitting,
)


class MemoryStore:
    """Entries sorted by (fire time, offset). They do not survive a restart
    (storage.store.Store)."""

    def __init__(self) -> None:
        self.covered = self.memtable_bytes = self.peeked_bytes = 0
        self._entries: list[Entry] = []

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            insort(self._entries, entry, key=lambda e: e[:2])

    def due(self, now_ms: int, limit: int, max_bytes: int = PEEK_BYTES) -> Due:
        until = bisect_right(self._entries, now_ms, key=lambda e: e[0])
        found = fitting(self._entries[: min(until, limit)], max_bytes)
        return Due(found, is_all=until < limit and len(found) == until)

    def advance(self, watermark_ms: int, cursor: int) -> None:
        until = bisect_right(self._entries, (watermark_ms, cursor), key=lambda e: e[:2])
        del self._entries[:until]

    def next_fires_ms(self, until_ms: int) -> int | None:
        first = self._entries[0][0] if self._entries else None
        return first if first is not None and first <= until_ms else None

    def floor(self, next_offset: int) -> int:
        return min((entry[1] for entry in self._entries), default=next_offset)

    def pending(self) -> int:
        return len(self._entries)

    def pending_by_target(self) -> TargetCounts:
        return TargetCounts(Counter(entry[2] for entry in self._entries))

    def pending_bytes(self) -> int:
        return sum(len(entry[3]) for entry in self._entries)

    def pending_bytes_by_target(self) -> TargetCounts:
        sizes: Counter[str] = Counter()
        for entry in self._entries:
            sizes[entry[2]] += len(entry[3])
        return TargetCounts(sizes)

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        spread = DueHistogram(edges_ms)
        spread.add(np.array([entry[0] for entry in self._entries], np.int64))
        return spread.whole()

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        upto = (until_ms, LAST_OFFSET)
        beyond = [e for e in self._entries if after < e[:2] <= upto]
        wanted = [e for e in beyond if wants is None or wants(e[2])]
        return first_scanned([Scanned(wanted, upto)], max_entries, max_bytes)

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        return False

    def request_flush(self) -> None:
        return None

    def flush(self, next_offset: int) -> None:
        return None

    def close(self) -> None:
        return None
