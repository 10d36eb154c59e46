"""The simplest Store there is: a sorted list. Tests hold the real engine against it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from storage.shard.memory.due_histogram import DueHistogram
from storage.store import Due, Entry, TargetCounts


class MemoryStore:
    """Keeps entries sorted by (due, offset); nothing survives it (storage.store.Store)."""

    def __init__(self) -> None:
        self.covered = 0
        self._entries: list[Entry] = []

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            insort(self._entries, entry, key=lambda e: e[:2])

    def due(self, now_ms: int, limit: int) -> Due:
        until = bisect_right(self._entries, now_ms, key=lambda e: e[0])
        return Due(self._entries[: min(until, limit)], is_all=until < limit)

    def advance(self, watermark_ms: int, cursor: int) -> None:
        until = bisect_right(self._entries, (watermark_ms, cursor), key=lambda e: e[:2])
        del self._entries[:until]

    def next_due_ms(self, until_ms: int) -> int | None:
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

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        return False

    def flush(self, next_offset: int) -> None:
        return None

    def close(self) -> None:
        return None
