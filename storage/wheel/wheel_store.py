"""The default `Store`: memory for what is new, wheel, log and bodies for the rest."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from storage.errors import StorageFull, StoreDamaged
from storage.shard.arrivals import NEAR_MS, Arrivals
from storage.shard.columns import dues_of
from storage.shard.due_histogram import Piece, Spread
from storage.shard.ledger import Ledger
from storage.shard.tally import floor_of, pending_of, targets_of
from storage.store import Due, Entry
from storage.wheel.compaction import Settling
from storage.wheel.flush import Flush
from storage.wheel.loaded_rows import Opened
from storage.wheel.slot_loader import SlotOpener
from storage.wheel.wheel_files import DAMAGED, ShardFiles

_key_of = itemgetter(0, 1)


@dataclass(frozen=True, slots=True)
class OpenReport:
    """How a folder was found: `new`, `reopened`, or `put aside` (then `aside` says where to)."""

    state: str
    detail: str = ""
    aside: Path | None = None


class DamageGuard:
    """Notes damage in the folder, so that the next opening puts it aside."""

    def __init__(self, shard: ShardFiles) -> None:
        self._shard = shard

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreDamaged):
            with suppress(OSError):
                self._shard.files.replace(self._shard.folder / DAMAGED, str(error).encode())


class WheelStore:
    """One shard. Entries live in one of three places: `recent` (memory, filling), `frozen`
    (memory, being written), or on disk, where `opened` holds the index rows of near slots."""

    def __init__(
        self, shard: ShardFiles, ledger: Ledger, report: OpenReport, unlock: Callable[[], None]
    ) -> None:
        self.report = report
        self._shard = shard
        self._ledger = ledger
        self._unlock = unlock
        self._now_ms = ledger.watermark_ms
        self._recent = self._table(ledger.watermark_ms)
        self._frozen: Arrivals | None = None
        self._opened = Opened(shard.entries_of)
        self._opener = SlotOpener(shard, ledger, self._opened)
        self._settle_before = self._opener.next_slot
        self._flush: Flush | None = None
        self._steps: Iterator[int] = iter(())
        self._last_offset = ledger.covered - 1
        self._guard = DamageGuard(shard)
        with self._guard:
            self._opener.open_through(self._slot(ledger.watermark_ms), enough=2**63)

    @property
    def covered(self) -> int:
        """Every ingress offset below this is in the files or has ended."""
        return self._ledger.covered

    def put(self, entries: Iterable[Entry]) -> None:
        """See `Store.put`."""
        batch = entries if isinstance(entries, list) else list(entries)
        if not batch:
            return
        if batch[0][1] <= self._last_offset:
            raise ValueError(f"offset {batch[0][1]} comes after {self._last_offset}")
        dues_ms = dues_of(batch)
        if dues_ms.min() <= self._ledger.watermark_ms and min(batch)[:2] <= self._ledger.ended:
            raise ValueError(f"{min(batch)[:2]} is not beyond the watermark {self._ledger.ended}")
        self._last_offset = batch[-1][1]
        self._recent.take(batch, dues_ms)

    def due(self, now_ms: int, limit: int) -> Due:
        """See `Store.due`."""
        self._now_ms = max(self._now_ms, now_ms)
        with self._guard:
            self._opener.open_through(self._slot(now_ms), limit)
            until_ms = min(now_ms, self._opener.next_slot * self._shard.options.precision_ms - 1)
            found = self._opened.peek(until_ms, limit)
        parts = [table.peek(until_ms, limit) for table in self._tables()]
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
        with self._guard:
            self._opener.open_through(self._slot(watermark_ms), enough=2**63)
        self._ledger.watermark_ms, self._ledger.cursor = watermark_ms, cursor
        for table in self._tables():
            table.forget(watermark_ms, cursor)
        ended, skipped = self._opened.forget(watermark_ms, cursor)
        if ended:
            self._ledger.counts.remove(ended)
        for rows in skipped:
            self._shard.count_ended(self._ledger.counts, rows)

    def next_due_ms(self, until_ms: int) -> int | None:
        """See `Store.next_due_ms`."""
        with self._guard:
            self._opener.open_through(self._slot(until_ms), enough=1)
        found = [table.next_due_ms(until_ms) for table in self._tables()]
        found.append(self._opened.next_due_ms())
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
        """See `Store.pending_by_time`. To the slot; records laps ahead count with their chain."""
        spread, later = Spread(edges_ms), Spread(edges_ms)
        precision_ms = self._shard.options.precision_ms
        for table in self._tables():
            table.spread_into(spread)
        opened, begun_below = len(self._opened), self._opener.begun_below
        first_ms = self._opened.next_due_ms()
        if first_ms is not None:
            last_ms = max(first_ms, begun_below * precision_ms)
            spread.add_evenly([Piece(first_ms, last_ms, opened)])
        slots, records = self._shard.wheel.begun_from(begun_below)
        later.add(slots * precision_ms, records)
        spread.join(later, max(0, self._ledger.counts.total - opened))
        return spread.whole()

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        """See `Store.maintain`."""
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        ahead = self._slot(self._now_ms) + self._shard.options.open_ahead_slots
        with self._guard:
            spent = self._opener.open_some(ahead, budget_entries)
            self._freeze_when_full()
            if self._flush is None and self._wants_flush():
                self._begin_flush()
            self._run_flush(budget_entries - spent)
        return self._flush is not None or self._opener.behind(ahead)

    def flush(self, next_offset: int) -> None:
        """See `Store.flush`."""
        self._ledger.next_offset = max(self._ledger.next_offset, next_offset)
        with self._guard:
            self._run_flush(2**63)
            for _ in self._tables():
                if self._frozen is None and len(self._recent):
                    self._freeze()
                self._begin_flush()
                self._run_flush(2**63)

    def close(self) -> None:
        """See `Store.close`."""
        self._shard.close()
        self._unlock()

    def _slot(self, due_ms: int) -> int:
        return due_ms // self._shard.options.precision_ms

    def _table(self, scanned_ms: int) -> Arrivals:
        return Arrivals(scanned_ms, crc32(self._shard.folder.name.encode()) % NEAR_MS)

    def _tables(self) -> list[Arrivals]:
        return [self._recent] if self._frozen is None else [self._frozen, self._recent]

    def _freeze_when_full(self) -> None:
        options, recent, ledger = self._shard.options, self._recent, self._ledger
        if self._frozen is not None or not len(recent):
            return
        behind = ledger.next_offset - max(ledger.covered, self.floor(ledger.next_offset))
        if (
            len(recent) >= options.recent_entries
            or recent.weight_bytes >= options.recent_bytes
            or behind >= options.recent_offsets
        ):
            self._freeze()

    def _freeze(self) -> None:
        self._frozen = self._recent
        self._recent = self._table(self._frozen.scanned_ms)

    def _wants_flush(self) -> bool:
        if self._frozen is not None:
            return self._frozen_is_committed()
        passed = self._slot(self._ledger.watermark_ms) - self._shard.checkpoint.closed
        holding = bool(self._shard.checkpoint.live) or bool(self._shard.bodies)
        return holding and passed >= self._shard.options.close_slots

    def _frozen_is_committed(self) -> bool:
        frozen = self._frozen
        return frozen is not None and frozen.last_offset < self._ledger.next_offset

    def _begin_flush(self) -> None:
        written = self._frozen if self._frozen_is_committed() else None
        unwritten = next(table for table in self._tables() if table is not written)
        settling = Settling(self._settle_before, self._ledger.counted)
        self._flush = Flush(self._shard, self._ledger, self._opener, written, settling, unwritten)
        self._steps = self._flush.steps()

    def _run_flush(self, budget_entries: int) -> None:
        spent = 0
        while self._flush is not None and spent < budget_entries:
            try:
                spent += next(self._steps)
            except StopIteration:
                if self._flush.frozen is not None:
                    self._frozen = None
                self._flush = None
            except OSError as error:
                flush, self._flush = self._flush, None
                with suppress(OSError):
                    flush.undo()
                raise StorageFull(self._shard.folder, error) from error
