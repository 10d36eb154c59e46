"""Loads wheel slots in order: reads their chains and hands the live rows to `LoadedRows`."""

from collections.abc import Iterator

import numpy as np

from storage.shard.ledger import Ledger
from storage.store import Column, Key
from storage.wheel.loaded_rows import LoadedRows
from storage.wheel.log.records import Rows, Run, rows_upto
from storage.wheel.wheel_files import WheelFiles

NOWHERE = 2**63 - 1
ENOUGH_ROWS = 65_536
READ_AHEAD_ROWS = 64


class SlotLoader:
    """`next_slot`: every lower slot number is loaded. A chain may be read in several pieces."""

    def __init__(self, files: WheelFiles, ledger: Ledger, loaded: LoadedRows) -> None:
        self.next_slot = ledger.watermark_ms // files.options.precision_ms
        self.memory_from = NOWHERE
        """Runs at this log position and beyond are still served from memory."""
        self._files = files
        self._ledger = ledger
        self._loaded = loaded
        self._reading: Iterator[int] | None = None
        self._waiting: list[Rows] = []
        self._waiting_rows = 0
        self._later: dict[int, int] = {}
        self._below_floor: list[Rows] = []

    @property
    def begun_below(self) -> int:
        """Slot numbers below this are loaded or being loaded."""
        return self.next_slot + (self._reading is not None)

    def load_through(self, slot: int, enough: int) -> None:
        """Load up to slot number `slot`; stop early once `enough` rows wait."""
        while self.next_slot <= slot and len(self._loaded) + self._waiting_rows < enough:
            self._step(slot)
            while self._reading is not None:
                self._step(slot)
        self._hand_over()

    def is_behind(self, slot: int) -> bool:
        """Whether `load_some` has anything to do: it keeps a bounded number of rows in memory."""
        return self.next_slot <= slot and len(self._loaded) + self._waiting_rows < ENOUGH_ROWS

    def load_some(self, slot: int, budget_entries: int) -> int:
        """Go on loading up to slot number `slot`; how many records were read."""
        spent = 0
        while self.is_behind(slot) and spent < budget_entries:
            spent += self._step(slot)
        self._hand_over()
        return spent

    def finish(self) -> None:
        """Read the chain in hand to its end."""
        while self._reading is not None:
            self._step(self.next_slot)
        self._hand_over()

    def add_flushed(self, slots: Column, positions: Column) -> None:
        """Load runs just flushed, in slot order, as far as their slots are begun already; and
        forget what was noted of chains that are closed now."""
        self._note_later(slots)
        begun = int(np.searchsorted(slots, self.begun_below))
        runs = [self._files.log.run(position) for position in positions[:begun].tolist()]
        self._collect([run.rows[run.upto(*self._ledger.ended) :] for run in runs])
        self._hand_over()

    def count_out_below_floor(self, ended: Key) -> None:
        """Count out what ended before the opening though it is due only now.

        Not at once: the counts of a checkpoint hold whatever is due beyond its watermark."""
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
        """Read one run, beginning the next slot up to `last` if none is in hand; its records."""
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
        """Give what was read to `LoadedRows` in one piece: many small slots then merge at once."""
        if self._waiting:
            self._loaded.add(self._waiting)
            self._waiting = []
            self._waiting_rows = 0
