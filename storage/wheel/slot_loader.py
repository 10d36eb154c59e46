"""Opens wheel slots in order: reads their chains and hands the live rows to `Opened`."""

from collections.abc import Iterator

import numpy as np

from storage.shard.ledger import Ledger
from storage.wheel.loaded_rows import Opened
from storage.wheel.log.records import Column, Rows, Run
from storage.wheel.wheel_files import ShardFiles

NOWHERE = 2**63 - 1
ENOUGH_ROWS = 65_536
READ_AHEAD_ROWS = 64


class SlotOpener:
    """`next_slot`: every lower slot number is open. A chain may be read in several pieces."""

    def __init__(self, shard: ShardFiles, ledger: Ledger, opened: Opened) -> None:
        self.next_slot = ledger.watermark_ms // shard.options.precision_ms
        self.memory_from = NOWHERE
        """Runs at this log position and beyond are still served from memory."""
        self._shard = shard
        self._ledger = ledger
        self._opened = opened
        self._reading: Iterator[int] | None = None
        self._waiting: list[Rows] = []
        self._waiting_rows = 0
        self._later: dict[int, int] = {}

    @property
    def begun_below(self) -> int:
        """Slot numbers below this are open or being opened."""
        return self.next_slot + (self._reading is not None)

    def open_through(self, slot: int, enough: int) -> None:
        """Open up to slot number `slot`; stop early once `enough` rows wait."""
        while self.next_slot <= slot and len(self._opened) + self._waiting_rows < enough:
            self._step(slot)
            while self._reading is not None:
                self._step(slot)
        self._hand_over()

    def behind(self, slot: int) -> bool:
        """Whether `open_some` has anything to do: it keeps a bounded number of rows open."""
        return self.next_slot <= slot and len(self._opened) + self._waiting_rows < ENOUGH_ROWS

    def open_some(self, slot: int, budget_entries: int) -> int:
        """Go on opening up to slot number `slot`; how many records were read."""
        spent = 0
        while self.behind(slot) and spent < budget_entries:
            spent += self._step(slot)
        self._hand_over()
        return spent

    def finish(self) -> None:
        """Read the chain in hand to its end."""
        while self._reading is not None:
            self._step(self.next_slot)
        self._hand_over()

    def add_flushed(self, slots: Column, positions: Column) -> None:
        """Open runs just flushed, in slot order, as far as their slots are begun already."""
        self._note_later(slots)
        begun = int(np.searchsorted(slots, self.begun_below))
        runs = [self._shard.log.run(position) for position in positions[:begun].tolist()]
        self._collect([run.rows[run.upto(*self._ledger.ended) :] for run in runs])
        self._hand_over()

    def _note_later(self, slots: Column) -> None:
        wheel = self._shard.wheel
        ahead = slots[slots >= self.begun_below]
        for slot in ahead[np.isin(ahead % wheel.slots, list(self._later))].tolist():
            place = slot % wheel.slots
            self._later[place] = min(self._later[place], slot)
        heads = wheel.heads(np.array(list(self._later), np.int64))
        for place, head in zip(list(self._later), heads, strict=True):
            if not head.records or head.time >= self.begun_below:
                del self._later[place]

    def _step(self, last: int) -> int:
        """Read one run, beginning the next slot up to `last` if none is in hand; its records."""
        if self._reading is None:
            found = self._shard.wheel.next_slot(self.next_slot, last, self._later)
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
        for run in self._shard.log.chain(self._shard.wheel.head(slot)):
            if run.slot > slot:
                later = min(later, run.slot)
            if run.slot == slot and run.position < memory_from:
                live.append(self._live(run))
            yield run.records
        self._later[slot % self._shard.wheel.slots] = later
        self._collect(live[::-1])

    def _live(self, run: Run) -> Rows:
        counted = run.upto(*self._ledger.counted)
        ended = max(counted, run.upto(*self._ledger.ended))
        if ended > counted:
            self._shard.count_ended(self._ledger.counts, run.rows[counted:ended])
        rows = run.rows[ended:]
        gone = rows["offset"] < self._ledger.floor
        if gone.any():
            self._shard.count_ended(self._ledger.counts, rows[gone])
            rows = rows[~gone]
        if rows.size >= READ_AHEAD_ROWS:
            self._shard.bodies.will_need(rows)
        return rows

    def _collect(self, runs: list[Rows]) -> None:
        self._waiting += [rows for rows in runs if rows.size]
        self._waiting_rows += sum(map(len, runs))

    def _hand_over(self) -> None:
        """Give what was read to `Opened` in one piece: many small slots then merge at once."""
        if self._waiting:
            self._opened.add(self._waiting)
            self._waiting = []
            self._waiting_rows = 0
