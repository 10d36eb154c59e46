"""A `Store` of memory tables in front of a `Backing`: what is new waits in memory, is written
whole once it is committed, and what ends before that never touches the disk."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from storage.errors import StorageFull, StoreDamaged
from storage.options import Options
from storage.shard.checkpoint import Checkpoint, boot_id
from storage.shard.due_histogram import Pieces, Spread
from storage.shard.files import Files
from storage.shard.ledger import Ledger
from storage.shard.recent import Recent
from storage.shard.tally import floor_of, pending_of, targets_of
from storage.sorted.backing import Backing
from storage.sorted.read_ahead_buffer import Front
from storage.store import Due, Entry
from storage.wheel.wheel_files import DAMAGED
from storage.wheel.wheel_store import OpenReport

MOST_TABLE_ENTRIES = 4096
"""A table is written in one go: this many entries take about 15 ms."""
MOST_TABLE_BYTES = 8 * 1024 * 1024

_key_of = itemgetter(0, 1)


class _Guard:
    """Notes damage in the folder, and names what the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreDamaged):
            with suppress(OSError):
                Files().replace(self._folder / DAMAGED, str(error).encode())
        if isinstance(error, OSError):
            raise StorageFull(self._folder, error) from error


class BackedStore:
    """One shard. Entries are in `recent` (memory, filling), in `frozen` (memory, full, waiting to
    be committed), or on disk, where `front` holds the first of them."""

    def __init__(
        self,
        folder: Path,
        options: Options,
        bound: dict[str, int],
        backing: Backing,
        ledger: Ledger,
        report: OpenReport,
        unlock: Callable[[], None],
    ) -> None:
        self.report = report
        self._options = options
        self._bound = bound
        self._backing = backing
        self._ledger = ledger
        self._unlock = unlock
        self._recent = Recent(ledger.watermark_ms)
        self._frozen: Recent | None = None
        self._last_offset = ledger.covered - 1
        self._ended_rows = 0
        self._guard = _Guard(folder)
        with self._guard:
            self._pieces = Pieces(backing.pieces())
            self._front = Front(backing, ledger)

    @property
    def covered(self) -> int:
        """Every ingress offset below this is with the backing or has ended."""
        return self._ledger.covered

    def put(self, entries: Iterable[Entry]) -> None:
        """See `Store.put`."""
        batch = entries if isinstance(entries, list) else list(entries)
        if not batch:
            return
        if batch[0][1] <= self._last_offset:
            raise ValueError(f"offset {batch[0][1]} comes after {self._last_offset}")
        if min(batch)[:2] <= self._ledger.ended:
            raise ValueError(f"{min(batch)[:2]} is not beyond the watermark {self._ledger.ended}")
        self._last_offset = batch[-1][1]
        self._recent.put(batch)

    def due(self, now_ms: int, limit: int) -> Due:
        """See `Store.due`."""
        with self._guard:
            found = self._front.peek(now_ms, limit)
        parts = [table.peek(now_ms, limit) for table in self._tables()]
        if not any(parts):
            return found
        merged = [entry for part in (found.entries, *parts) for entry in part]
        merged.sort(key=_key_of)
        if not found.is_all and found.entries:
            del merged[bisect_right(merged, found.entries[-1][:2], key=_key_of) :]
        del merged[limit:]
        return Due(merged, is_all=found.is_all and len(merged) < limit)

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """See `Store.advance`."""
        if (watermark_ms, cursor) <= self._ledger.ended:
            return
        self._ledger.watermark_ms, self._ledger.cursor = watermark_ms, cursor
        for table in self._tables():
            table.forget(watermark_ms, cursor)
        with self._guard:
            self._ended_rows += self._front.forget((watermark_ms, cursor))

    def next_due_ms(self, until_ms: int) -> int | None:
        """See `Store.next_due_ms`."""
        found = [table.next_due_ms(until_ms) for table in self._tables()]
        with self._guard:
            found.append(self._front.next_due_ms(until_ms))
        return min((due for due in found if due is not None and due <= until_ms), default=None)

    def floor(self, next_offset: int) -> int:
        """See `Store.floor`."""
        return floor_of(self._ledger, self._tables(), next_offset)

    def pending(self) -> int:
        """See `Store.pending`."""
        return pending_of(self._ledger, self._tables())

    def pending_by_target(self) -> dict[str, int]:
        """See `Store.pending_by_target`."""
        return targets_of(self._ledger, self._tables())

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        """See `Store.pending_by_time`. On disk only the dues of pieces of tables are known."""
        spread = Spread(edges_ms)
        for table in self._tables():
            table.spread_into(spread)
        on_disk = self._pieces.spread(edges_ms, self._ledger.watermark_ms)
        spread.join(on_disk, self._ledger.counts.total)
        return spread.whole()

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        """See `Store.maintain`. A full table is written in one go, whatever the budget."""
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard:
            if self._frozen is None and self._is_full(self._recent):
                self._freeze()
            if self._frozen_is_committed():
                self._write(self._frozen)
            elif self._ended_rows >= self._most_entries or self._is_behind():
                self._write(None)
            is_more = self._backing.tidy(budget_entries)
        return is_more or (self._frozen is None and self._is_full(self._recent))

    def flush(self, next_offset: int) -> None:
        """See `Store.flush`."""
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard:
            for _ in self._tables():
                if self._frozen is None and len(self._recent):
                    self._freeze()
                self._write(self._frozen if self._frozen_is_committed() else None)
            self._backing.persist()

    def close(self) -> None:
        """See `Store.close`."""
        self._backing.close()
        self._unlock()

    @property
    def _most_entries(self) -> int:
        return min(self._options.recent_entries, MOST_TABLE_ENTRIES)

    def _tables(self) -> list[Recent]:
        return [self._recent] if self._frozen is None else [self._frozen, self._recent]

    def _is_full(self, table: Recent) -> bool:
        most_bytes = min(self._options.recent_bytes, MOST_TABLE_BYTES)
        return bool(len(table)) and (
            len(table) >= self._most_entries
            or table.weight_bytes >= most_bytes
            or self._is_behind()
        )

    def _is_behind(self) -> bool:
        """Whether a restart would have too much to read again."""
        next_offset = self._ledger.next_offset
        behind = next_offset - max(self._ledger.covered, self.floor(next_offset))
        return behind >= self._options.recent_offsets

    def _freeze(self) -> None:
        self._frozen = self._recent
        self._recent = Recent(self._frozen.scanned_ms)

    def _frozen_is_committed(self) -> bool:
        frozen = self._frozen
        return frozen is not None and frozen.last_offset < self._ledger.next_offset

    def _write(self, table: Recent | None) -> None:
        """Write a table (None: the checkpoint alone); nothing here changes when that fails."""
        entries: list[Entry] = []
        checkpoint = self._checkpoint(table)
        if table is not None:
            checkpoint.counts.merge(table.counts)
            for part in table.slices(table.dues_in_order(), self._most_entries):
                entries += part
        self._backing.write(entries, checkpoint)
        self._ledger.counts = checkpoint.counts.copy()
        self._ledger.covered = checkpoint.covered
        self._pieces.note_written(entries, self._ledger.watermark_ms)
        self._ended_rows = 0
        if table is not None:
            self._frozen = None
        if entries:
            self._front.note_written(entries[0][:2])

    def _checkpoint(self, written: Recent | None) -> Checkpoint:
        ledger = self._ledger
        left = [table for table in self._tables() if table is not written and len(table)]
        firsts = [table.first_offset for table in left if table.first_offset is not None]
        covered = min([ledger.next_offset, *firsts])
        return Checkpoint(
            options=self._bound,
            covered=max(ledger.covered, covered),
            watermark_ms=ledger.watermark_ms,
            cursor=ledger.cursor,
            boot_id=boot_id(),
            counts=ledger.counts.copy(),
        )
