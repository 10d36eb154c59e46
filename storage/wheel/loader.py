"""The loader of wheel slots into memory, shortly before their time."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import numpy as np

from storage.store import Column, Due, Entry, Key
from storage.tier import Ledger
from storage.wheel.log import NOWHERE, RECORD, Rows, Run, in_order, joined, key_at, rows_upto
from storage.wheel.wheel import WheelFiles

MERGE_ROWS = 32_768
LEAST_ROWS = 16

_key_of = itemgetter(0, 1)


class SortedRows:
    """Sorted rows that `peek` has not returned yet, in pieces. A piece may be a view of the log."""

    def __init__(self, rows: Rows) -> None:
        self._pieces = deque([rows])
        self.head = key_at(rows, 0)
        self.last = key_at(rows, -1)

    def extend(self, rows: Rows) -> None:
        self._pieces.append(rows)
        self.last = key_at(rows, -1)

    @property
    def piece(self) -> Rows:
        return self._pieces[0]

    def take(self, count: int) -> Rows:
        piece = self._pieces[0]
        taken: Rows = piece[:count]
        if count < len(piece):
            self._pieces[0] = piece[count:]
        else:
            self._pieces.popleft()
        if self._pieces:
            self.head = key_at(self._pieces[0], 0)
        return taken

    def __bool__(self) -> bool:
        return bool(self._pieces)


class LoadedRows:
    """Rows of loaded slots, merged in order. `peek` turns rows into entries."""

    def __init__(self, decode: Callable[[Rows], list[Entry]]) -> None:
        self._decode = decode
        self._batches: list[SortedRows] = []
        self._entries: list[Entry] = []
        self._rows: Rows = np.zeros(0, RECORD)
        self.peeked_bytes = 0
        self._left = 0

    def __len__(self) -> int:
        return len(self._entries) + self._left

    def add(self, runs: Sequence[Rows]) -> None:
        total = sum(map(len, runs))
        self._left += total
        if total <= MERGE_ROWS and len(runs) > 1:
            runs = [in_order(joined(runs))]
        fresh: list[SortedRows] = []
        for rows in runs:
            if fresh and fresh[-1].last < key_at(rows, 0):
                fresh[-1].extend(rows)
            else:
                fresh.append(SortedRows(rows))
        self._batches += fresh
        if self._entries and any(batch.head < key_at(self._rows, -1) for batch in fresh):
            self._undo_peeks()

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        is_cut = False
        while len(self._entries) < max_entries and not is_cut:
            rows = self._take(until_ms, max_entries - len(self._entries))
            if rows is None:
                break
            rows, is_cut = self._fitting(rows, max_bytes)
            self._entries += self._decode(rows)
            self._rows = joined((self._rows, rows))
        found = self._entries[:max_entries]
        if found and found[-1][0] > until_ms:
            del found[bisect_right(found, until_ms, key=itemgetter(0)) :]
        return Due(found, is_all=not is_cut and len(found) < max_entries)

    def next_fires_ms(self) -> int | None:
        if self._entries:
            return self._entries[0][0]
        return min((batch.head[0] for batch in self._batches), default=None)

    def forget(self, watermark_ms: int, cursor: int) -> tuple[list[Entry], list[Rows]]:
        """Drop all rows up to this watermark. Return the peeked rows as entries, and the others."""
        key = (watermark_ms, cursor)
        count = bisect_right(self._entries, key, key=_key_of)
        ended = self._entries[:count]
        if count:
            del self._entries[:count]
            self.peeked_bytes -= int(self._rows["length"][:count].sum())
            self._rows = self._rows[count:]
        skipped: list[Rows] = []
        if not self._entries:
            skipped = self._skip(key)
        return ended, skipped

    def _skip(self, key: Key) -> list[Rows]:
        skipped: list[Rows] = []
        for batch in self._batches:
            while batch and batch.head <= key:
                skipped.append(batch.take(rows_upto(batch.piece, *key)))
        self._drop_empty(sum(map(len, skipped)))
        return skipped

    def _take(self, until_ms: int, wanted: int) -> Rows | None:
        batches = sorted(
            (batch for batch in self._batches if batch.head[0] <= until_ms),
            key=lambda batch: batch.head,
        )
        if not batches:
            return None
        first = batches[0].piece
        pivot = min(key_at(first, min(wanted, len(first)) - 1), (until_ms, 2**63 - 1))
        rivals = [batch for batch in batches if batch.head <= pivot]
        if len(rivals) > 1:
            pivot = _frontier(rivals, pivot, max(LEAST_ROWS, 2 * wanted // len(rivals)))
        parts = [
            batch.take(rows_upto(batch.piece, *pivot)) for batch in rivals if batch.head <= pivot
        ]
        self._drop_empty(sum(map(len, parts)))
        return parts[0] if len(parts) == 1 else in_order(joined(parts))

    def _fitting(self, rows: Rows, max_bytes: int) -> tuple[Rows, bool]:
        sizes = np.cumsum(rows["length"], dtype=np.int64)
        fit = int(np.searchsorted(sizes, max_bytes - self.peeked_bytes, "right"))
        fit = max(fit, 0 if self._entries else 1)
        if fit < len(rows):
            self._left += len(rows) - fit
            self._batches.append(SortedRows(rows[fit:]))
        self.peeked_bytes += int(sizes[fit - 1]) if fit else 0
        return rows[:fit], fit < len(rows)

    def _drop_empty(self, taken: int) -> None:
        if taken:
            self._left -= taken
            self._batches = [batch for batch in self._batches if batch]

    def _undo_peeks(self) -> None:
        self._left += len(self._entries)
        self._batches.append(SortedRows(self._rows))
        self._entries = []
        self.peeked_bytes = 0
        self._rows = self._rows[:0]


def _frontier(rivals: list[SortedRows], pivot: Key, share: int) -> Key:
    for batch in rivals:
        piece = batch.piece
        pivot = min(pivot, key_at(piece, min(share, len(piece)) - 1))
    return pivot


ENOUGH_ROWS = 65_536
READ_AHEAD_ROWS = 64


class SlotLoader:
    """A loader of wheel slots, in order."""

    def __init__(self, files: WheelFiles, ledger: Ledger, loaded: LoadedRows) -> None:
        self.next_slot = ledger.watermark_ms // files.options.precision_ms
        """Lower slot numbers are loaded."""
        self.memory_from = NOWHERE
        """Runs from this log position on are not loaded, because the memtable still serves them."""
        self._files = files
        self._ledger = ledger
        self._loaded = loaded
        self._reading: Iterator[int] | None = None
        self._waiting: list[Rows] = []
        self._waiting_rows = 0
        self._later: dict[int, int] = {}
        """The next slot number of each chain that was read but not closed, by its place."""
        self._below_floor: list[Rows] = []
        """Records that had ended before the opening. They are counted until their firing time."""

    @property
    def begun_below(self) -> int:
        """Lower slot numbers are loaded or being loaded."""
        return self.next_slot + (self._reading is not None)

    def load_through(self, slot: int, enough: int) -> None:
        while self.next_slot <= slot and len(self._loaded) + self._waiting_rows < enough:
            self._step(slot)
            while self._reading is not None:
                self._step(slot)
        self._hand_over()

    def is_behind(self, slot: int) -> bool:
        """Return whether `load_some` has work. While enough rows are in memory, it has none."""
        return self.next_slot <= slot and len(self._loaded) + self._waiting_rows < ENOUGH_ROWS

    def load_some(self, slot: int, budget_entries: int) -> int:
        spent = 0
        while self.is_behind(slot) and spent < budget_entries:
            spent += self._step(slot)
        self._hand_over()
        return spent

    def finish(self) -> None:
        while self._reading is not None:
            self._step(self.next_slot)
        self._hand_over()

    def add_flushed(self, slots: Column, positions: Column) -> None:
        """Load flushed runs of slots that are loaded or being loaded. Forget closed chains."""
        self._note_later(slots)
        begun = int(np.searchsorted(slots, self.begun_below))
        runs = [self._files.log.run(position) for position in positions[:begun].tolist()]
        self._collect([run.rows[run.upto(*self._ledger.ended) :] for run in runs])
        self._hand_over()

    def count_out_below_floor(self, ended: Key) -> None:
        """Take records of `_below_floor` off the counts once the watermark has passed them."""
        waiting, self._below_floor = self._below_floor, []
        for rows in waiting:
            passed = rows_upto(rows, *ended)
            if passed:
                self._files.count_ended(self._ledger.counts, rows[:passed])
            if passed < rows.size:
                self._below_floor.append(rows[passed:])

    def _note_later(self, slots: Column) -> None:
        wheel = self._files.wheel
        ahead = slots[slots >= self.begun_below]
        for slot in ahead[np.isin(ahead % wheel.slots, list(self._later))].tolist():
            place = slot % wheel.slots
            self._later[place] = min(self._later[place], slot)
        heads = wheel.heads(np.array(list(self._later), np.int64))
        for place, head in zip(list(self._later), heads, strict=True):
            if not head.records or head.time >= self.begun_below:
                del self._later[place]

    def _step(self, last: int) -> int:
        """Read one run. Begin the next slot if needed. Return the number of records read."""
        if self._reading is None:
            found = self._files.wheel.next_slot(self.next_slot, last, self._later)
            self.next_slot = last + 1 if found is None else found
            self._reading = None if found is None else self._read(found)
        read = 0 if self._reading is None else next(self._reading, None)
        if read is None:
            self._reading = None
            self.next_slot += 1
        return read or 0

    def _read(self, slot: int) -> Iterator[int]:
        memory_from = self.memory_from
        live: list[Rows] = []
        later = NOWHERE
        for run in self._files.chain(slot, self._files.wheel.head(slot)):
            if run.slot > slot:
                later = min(later, run.slot)
            if run.slot == slot and run.position < memory_from:
                live.append(self._live(run))
            yield run.records
        self._later[slot % self._files.wheel.slots] = later
        self._collect(live[::-1])

    def _live(self, run: Run) -> Rows:
        counted = run.upto(*self._ledger.counted)
        ended = max(counted, run.upto(*self._ledger.ended))
        if ended > counted:
            self._files.count_ended(self._ledger.counts, run.rows[counted:ended])
        rows = run.rows[ended:]
        gone = rows["offset"] < self._ledger.floor
        if gone.any():
            self._below_floor.append(rows[gone])
            rows = rows[~gone]
        if rows.size >= READ_AHEAD_ROWS:
            self._files.bodies.will_need(rows)
        return rows

    def _collect(self, runs: list[Rows]) -> None:
        self._waiting += [rows for rows in runs if rows.size]
        self._waiting_rows += sum(map(len, runs))

    def _hand_over(self) -> None:
        if self._waiting:
            self._loaded.add(self._waiting)
            self._waiting = []
            self._waiting_rows = 0
