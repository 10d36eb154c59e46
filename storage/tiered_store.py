"""A store: memtables in front of a tier on disk."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from zlib import crc32

from storage.counts import Counts, DueHistogram, TargetCounter
from storage.folder import DamageGuard
from storage.memtable import NEAR_MS, Memtable
from storage.options import Options
from storage.store import (
    PEEK_BYTES,
    Due,
    Entry,
    Key,
    OpenReport,
    Scanned,
    TargetCounts,
    Wants,
    dues_of,
    first_scanned,
    fitting,
)
from storage.tier import DiskTier, Ledger

_key_of = itemgetter(0, 1)


class TieredStore:
    """The implementation of `Store` for the kinds `wheel` and `rocksdb`, each with its own tier.

    A full memtable becomes immutable. It is written once the offsets of its entries are committed.
    Entries that end before this write are never written."""

    def __init__(
        self,
        folder: Path,
        tier: DiskTier,
        ledger: Ledger,
        options: Options,
        report: OpenReport,
        guard: DamageGuard,
        unlock: Callable[[], None],
    ) -> None:
        self.report = report
        self._tier = tier
        self._ledger = ledger
        self._options = options
        self._guard = guard
        self._unlock = unlock
        self._phase_ms = crc32(folder.name.encode()) % NEAR_MS
        self._numbers = ledger.counts.targets.numbers
        self._active = Memtable(self._numbers, ledger.watermark_ms, self._phase_ms)
        self._immutable: Memtable | None = None
        self._flushing: Iterator[int] | None = None
        self._flushed: Memtable | None = None
        self._is_flush_requested = False
        self._last_offset = ledger.covered - 1

    @property
    def covered(self) -> int:
        return self._ledger.covered

    @property
    def memtable_bytes(self) -> int:
        immutable = self._immutable
        return self._active.weight_bytes + (0 if immutable is None else immutable.weight_bytes)

    @property
    def peeked_bytes(self) -> int:
        return self._tier.peeked_bytes

    def put(self, entries: Iterable[Entry]) -> None:
        batch = entries if isinstance(entries, list) else list(entries)
        if not batch:
            return
        if batch[0][1] <= self._last_offset:
            raise ValueError(f"offset {batch[0][1]} was put after offset {self._last_offset}")
        times_ms = dues_of(batch)
        if times_ms.min() <= self._ledger.watermark_ms and min(batch)[:2] <= self._ledger.ended:
            raise ValueError(f"{min(batch)[:2]} is not beyond the watermark {self._ledger.ended}")
        self._last_offset = batch[-1][1]
        self._active.put(batch, times_ms)

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        found = self._merged(now_ms, max_entries, max_bytes)
        if self._tier.peeked_bytes + self.memtable_bytes <= max_bytes:
            return found
        entries = fitting(found.entries, max_bytes)
        return Due(entries, is_all=found.is_all and entries is found.entries)

    def _merged(self, now_ms: int, max_entries: int, max_bytes: int) -> Due:
        with self._guard.reading:
            found = self._tier.peek(now_ms, max_entries, max_bytes)
        parts = [memtable.peek(now_ms, max_entries) for memtable in self._memtables()]
        if not any(parts):
            return found
        merged = [entry for part in (found.entries, *parts) for entry in part]
        merged.sort(key=_key_of)
        if not found.is_all and found.entries:
            del merged[bisect_right(merged, found.entries[-1][:2], key=_key_of) :]
        del merged[max_entries:]
        return Due(merged, is_all=found.is_all and len(merged) < max_entries)

    def advance(self, watermark_ms: int, cursor: int) -> None:
        ended = (watermark_ms, cursor)
        if ended <= self._ledger.ended:
            return
        self._ledger.watermark_ms, self._ledger.cursor = ended
        for memtable in self._memtables():
            memtable.forget(ended)
        with self._guard.reading:
            self._tier.forget(ended)

    def next_fires_ms(self, until_ms: int) -> int | None:
        with self._guard.reading:
            first_ms = self._tier.next_fires_ms(until_ms)
        for memtable in self._memtables():
            fires_ms = memtable.next_fires_ms(until_ms)
            if fires_ms is not None and (first_ms is None or fires_ms < first_ms):
                first_ms = fires_ms
        return first_ms if first_ms is not None and first_ms <= until_ms else None

    def floor(self, next_offset: int) -> int:
        chunks = [counts.chunks.floor() for counts in self._counts()]
        lowest = min((chunk for chunk in chunks if chunk is not None), default=next_offset)
        return min(next_offset, max(lowest, self._ledger.floor))

    def pending(self) -> int:
        return self._ledger.counts.total + sum(map(len, self._memtables()))

    def pending_by_target(self) -> TargetCounts:
        return self._joined(counts.targets for counts in self._counts())

    def pending_bytes(self) -> int:
        return sum(counts.total_bytes for counts in self._counts())

    def pending_bytes_by_target(self) -> TargetCounts:
        return self._joined(counts.target_bytes for counts in self._counts())

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        histogram = DueHistogram(edges_ms)
        for memtable in self._memtables():
            memtable.count_dues(histogram)
        self._tier.count_dues(histogram)
        return histogram.whole()

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        after = max(after, self._ledger.ended)
        with self._guard.reading:
            parts = [self._tier.scan(after, until_ms, wants, max_entries, max_bytes)]
        parts += [
            memtable.scan(after, until_ms, wants, max_entries) for memtable in self._memtables()
        ]
        return first_scanned(parts, max_entries, max_bytes)

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard.reading:
            spent = self._tier.load(budget_entries)
        with self._guard.writing:
            self._release_numbers()
            if self._immutable is None and self._is_full(self._active):
                self._close_active()
            if self._flushing is None and self._wants_flush():
                self._begin_flush()
            self._continue_flush(budget_entries - spent)
        return self._flushing is not None or self._tier.is_loading

    def request_flush(self) -> None:
        has_more = bool(len(self._active)) or self.covered < self._ledger.next_offset
        is_idle = self._immutable is None and self._flushing is None
        self._is_flush_requested = is_idle and has_more

    def flush(self, next_offset: int) -> None:
        if self._guard.failed:
            raise self._guard.failed
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard.writing:
            self._continue_flush(2**63)
            for _ in self._memtables():
                if self._immutable is None and len(self._active):
                    self._close_active()
                self._begin_flush()
                self._continue_flush(2**63)
            self._tier.persist()

    def close(self) -> None:
        try:
            with self._guard.writing:
                self._tier.close()
        finally:
            self._unlock()

    def _memtables(self) -> list[Memtable]:
        return [self._active] if self._immutable is None else [self._immutable, self._active]

    def _counts(self) -> list[Counts]:
        return [self._ledger.counts, *(memtable.counts for memtable in self._memtables())]

    def _joined(self, counters: Iterable[TargetCounter]) -> TargetCounts:
        joined = TargetCounter(self._numbers)
        for counter in counters:
            joined.merge(counter)
        return joined.shown()

    def _release_numbers(self) -> None:
        """Free the numbers of targets without pending entries, but not during a flush."""
        if not self._numbers.wants_release or self._flushing is not None:
            return
        counted = [counts.targets for counts in self._counts()]
        if not any(targets.others for targets in counted):
            self._numbers.release({name for targets in counted for name in targets.by_name})

    def _is_full(self, memtable: Memtable) -> bool:
        options = self._options
        return bool(len(memtable)) and (
            self._is_flush_requested
            or len(memtable) >= options.memtable_entries
            or memtable.weight_bytes >= options.memtable_bytes
            or self._is_behind()
        )

    def _is_behind(self) -> bool:
        next_offset, most = self._ledger.next_offset, self._options.replayed_offsets
        if next_offset - self._ledger.covered < most:
            return False
        return next_offset - self.floor(next_offset) >= most

    def _close_active(self) -> None:
        self._immutable = self._active
        self._active = Memtable(self._numbers, self._immutable.scanned_ms, self._phase_ms)

    def _wants_flush(self) -> bool:
        if self._immutable is not None:
            return self._is_committed(self._immutable)
        return self._is_flush_requested or self._tier.wants_compaction or self._is_behind()

    def _is_committed(self, memtable: Memtable) -> bool:
        return memtable.last_offset < self._ledger.next_offset

    def _begin_flush(self) -> None:
        self._is_flush_requested = False
        immutable = self._immutable
        is_written = immutable is not None and self._is_committed(immutable)
        self._flushed = immutable if is_written else None
        self._flushing = self._tier.flush(self._flushed, self._coverable)

    def _continue_flush(self, budget_entries: int) -> None:
        spent = 0
        while self._flushing is not None and spent < budget_entries:
            steps, self._flushing = self._flushing, None
            step = next(steps, None)
            if step is not None:
                spent, self._flushing = spent + step, steps
            elif self._flushed is not None:
                self._immutable = self._flushed = None

    def _coverable(self) -> int:
        left = [memtable for memtable in self._memtables() if memtable is not self._flushed]
        firsts = [memtable.first_offset for memtable in left if memtable.first_offset is not None]
        return max(self._ledger.covered, min([self._ledger.next_offset, *firsts]))
