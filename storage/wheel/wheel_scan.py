"""What pends on disk, read from the wheel's chains alone: nothing that was loaded is touched."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.shard.ledger import Ledger
from storage.shard.memory.columns import are_beyond
from storage.shard.memory.target_numbers import UNNAMED
from storage.store import LAST_OFFSET, Entry, Key, Scanned, Wants
from storage.wheel.chain_laps import ChainLaps
from storage.wheel.loaded_rows import key_at
from storage.wheel.log.records import RECORD, Rows, in_order, joined, rows_upto
from storage.wheel.wheel_files import WheelFiles

MERGED_ROWS = 16_384
"""So many rows of a slot are sorted at once: about a millisecond."""
LEAST_ROWS = 4
BUDGET = 256
"""Runs read in one scan, each some microseconds; a slot counts as so many more: """
SLOT_COSTS = 4
SLOTS_PASSED = 256
"""Passing so many slots by costs as much as reading a run."""
Found = tuple[list[Rows], Key]
"""Rows in order, and up to where that is all."""


class WheelScan:
    """Until its slot has been closed, a chain holds all that pends of it. So neither what is loaded
    already nor what is being loaded has to be asked."""

    def __init__(self, files: WheelFiles, ledger: Ledger) -> None:
        self._files, self._ledger = files, ledger
        self._precision_ms = files.options.precision_ms
        self._laps = ChainLaps(files.wheel)
        self._lap_costs = 1 + files.wheel.slots // SLOTS_PASSED

    def scan(
        self,
        after: Key,
        until_ms: int,
        wants: Wants,
        max_entries: int,
        max_bytes: int,
        memory_from: int,
    ) -> Scanned:
        """The first wanted entries; runs at `memory_from` and beyond are served from memory."""
        parts, upto = self._find(after, until_ms, wants, max_entries, memory_from)
        rows = joined(parts) if parts else np.zeros(0, RECORD)
        rows = rows[: rows_upto(rows, *upto)]
        sizes = np.cumsum(rows["length"], dtype=np.int64)
        fit = max(1, int(np.searchsorted(sizes, max_bytes, "right")))
        fit = min(fit, max_entries)
        if fit < rows.size:
            rows, upto = rows[:fit], key_at(rows, fit - 1)
        return Scanned(self._entries(rows, wants), upto)

    def _find(
        self, after: Key, until_ms: int, wants: Wants, enough: int, memory_from: int
    ) -> Found:
        """Go from slot to slot until there are `enough` wanted rows, or enough was done."""
        parts: list[Rows] = []
        spent = count = 0
        at: int | None = (after[0] + (after[1] >= LAST_OFFSET)) // self._precision_ms
        last = until_ms // self._precision_ms
        while at is not None and at <= last:
            if spent >= BUDGET or count >= enough:
                return parts, (at * self._precision_ms - 1, LAST_OFFSET)
            slot = self._laps.next_slot(at, last)
            if slot is None:
                spent, at = spent + self._lap_costs, self._laps.next_lap(at)
                continue
            runs = self._runs(slot, memory_from)
            rows, is_all = _first_rows(runs, after)
            parts.append(self._wanted(rows, wants))
            if not is_all and rows[-1]["due_ms"] <= until_ms:
                return parts, key_at(rows, -1)
            count += parts[-1].size
            spent += SLOT_COSTS + len(runs) + (slot - at) // SLOTS_PASSED
            at = slot + 1
        self._laps.forget()
        return parts, (until_ms, LAST_OFFSET)

    def _runs(self, slot: int, memory_from: int) -> list[Rows]:
        """The runs of one slot number. Those of a very long chain are not checked by their CRC: its
        rows are checked when they are delivered, and their bodies whenever they are read."""
        head = self._files.wheel.head(slot)
        chain = self._files.log.chain(head, checked=head.records <= MERGED_ROWS)
        runs = list(chain)
        if slot >= self._ledger.watermark_ms // self._precision_ms + self._files.wheel.slots:
            self._laps.note(slot, head, [run.slot for run in runs])
        return [run.rows for run in runs if run.slot == slot and run.position < memory_from]

    def _wanted(self, rows: Rows, wants: Wants) -> Rows:
        """Without what ended before the opening, and what is for other targets as far as their
        numbers tell."""
        if self._ledger.floor:
            rows = rows[rows["offset"] >= self._ledger.floor]
        if wants is None or not rows.size:
            return rows
        names = self._files.names
        met = np.unique(rows["target"]).tolist()
        wanted = [number for number in met if number == UNNAMED or wants(names[number])]
        is_wanted: npt.NDArray[np.bool_] = np.isin(rows["target"], wanted)
        kept: Rows = rows[is_wanted]
        return kept

    def _entries(self, rows: Rows, wants: Wants) -> list[Entry]:
        entries = self._files.entries_of(rows)
        return entries if wants is None else [entry for entry in entries if wants(entry[2])]


def _first_rows(runs: Sequence[Rows], after: Key) -> tuple[Rows, bool]:
    """The first rows beyond `after` of sorted runs, in order; whether that is all of them."""
    if sum(map(len, runs)) <= MERGED_ROWS:
        rows = joined(runs) if runs else np.zeros(0, RECORD)
        return in_order(rows[are_beyond(rows["due_ms"], rows["offset"], after)]), True
    left = [part for run in runs if (part := run[rows_upto(run, *after) :]).size]
    share = max(LEAST_ROWS, MERGED_ROWS // max(1, len(left)))
    pivots = [key_at(part, share - 1) for part in left if part.size > share]
    if not pivots:
        return in_order(joined(left)) if left else np.zeros(0, RECORD), True
    pivot = min(pivots)
    return in_order(joined([part[: rows_upto(part, *pivot)] for part in left])), False
