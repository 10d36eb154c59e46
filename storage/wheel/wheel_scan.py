"""What pends on disk, read from the wheel's chains alone: nothing that was loaded is touched."""

from collections.abc import Sequence

import numpy as np

from storage.shard.ledger import Ledger
from storage.shard.memory.columns import are_beyond
from storage.shard.memory.target_numbers import UNNAMED
from storage.store import LAST_OFFSET, Entry, Key, Scanned, Wants
from storage.wheel.chain_laps import ChainLaps
from storage.wheel.loaded_rows import key_at
from storage.wheel.log.records import RECORD, Head, Rows, Run, in_order, joined, rows_upto
from storage.wheel.wheel_files import WheelFiles

MERGED_ROWS = 8_192
"""So many rows are sorted at once: about a millisecond."""
LEAST_ROWS = 4
BUDGET = 512
"""Runs read in one scan, each some microseconds."""
SLOT_COSTS = 2
"""A slot counts as so many runs more."""
SLOTS_PASSED = 512
"""Passing so many slots by costs as much as reading a run."""


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
        enough = max_entries if wants is None else MERGED_ROWS
        runs, upto = self._find(after, until_ms, enough, memory_from)
        rows, frontier = _first_rows(runs, after, enough)
        upto = min(upto, frontier or upto)
        rows = self._wanted(rows[: rows_upto(rows, *upto)], wants)
        sizes = np.cumsum(rows["length"], dtype=np.int64)
        fit = min(max_entries, max(1, int(np.searchsorted(sizes, max_bytes, "right"))))
        if fit < rows.size:
            rows, upto = rows[:fit], key_at(rows, fit - 1)
        return Scanned(self._entries(rows, wants), upto)

    def _find(
        self, after: Key, until_ms: int, enough: int, memory_from: int
    ) -> tuple[list[Rows], Key]:
        """The runs of the next slots, until they have `enough` rows or enough were read; up to
        where that is all."""
        runs: list[Rows] = []
        spent = rows = 0
        at: int | None = (after[0] + (after[1] >= LAST_OFFSET)) // self._precision_ms
        last = until_ms // self._precision_ms
        while at is not None and at <= last:
            slots = self._laps.next_slots(at, last)
            heads = self._files.wheel.heads(np.array(slots, np.int64) % self._files.wheel.slots)
            for slot, head in zip(slots, heads, strict=True):
                if spent >= BUDGET or rows >= enough:
                    return runs, (slot * self._precision_ms - 1, LAST_OFFSET)
                chain = self._runs(slot, head)
                found = [
                    run.rows for run in chain if run.slot == slot and run.position < memory_from
                ]
                rows += sum(map(len, found))
                spent += SLOT_COSTS + len(chain) + (slot - at) // SLOTS_PASSED
                runs.extend(found)
                at = slot + 1
            if not slots:
                at, spent = self._laps.next_lap(at), spent + self._lap_costs
                if at is not None and at <= last and spent >= BUDGET:
                    return runs, (at * self._precision_ms - 1, LAST_OFFSET)
        self._laps.forget()
        return runs, (until_ms, LAST_OFFSET)

    def _runs(self, slot: int, head: Head) -> list[Run]:
        """The runs of the chain that keeps this slot number. A very long one is not checked by its
        CRCs: its rows are checked when they are delivered, and their bodies whenever they are
        read."""
        runs = list(self._files.chain(slot, head, checked=head.records <= MERGED_ROWS))
        if slot >= self._ledger.watermark_ms // self._precision_ms + self._files.wheel.slots:
            self._laps.note(slot, head, [run.slot for run in runs])
        return runs

    def _wanted(self, rows: Rows, wants: Wants) -> Rows:
        """Without what ended before the opening, and what is for other targets as far as their
        numbers tell."""
        if self._ledger.floor:
            rows = rows.compress(rows["offset"] >= self._ledger.floor)
        if wants is None or not rows.size:
            return rows
        names, known = self._files.names, dict[int, bool]({UNNAMED: True})
        numbers = rows["target"].tolist()
        for number in {*numbers} - {*known}:
            known[number] = wants(names[number])
        is_wanted = np.fromiter(map(known.__getitem__, numbers), np.bool_, len(numbers))
        kept: Rows = rows.compress(is_wanted)
        return kept

    def _entries(self, rows: Rows, wants: Wants) -> list[Entry]:
        entries = self._files.entries_of(rows)
        return entries if wants is None else [entry for entry in entries if wants(entry[2])]


def _first_rows(runs: Sequence[Rows], after: Key, enough: int) -> tuple[Rows, Key | None]:
    """The first rows beyond `after` of sorted runs, in order; up to where, None if that is all."""
    if sum(map(len, runs)) <= MERGED_ROWS:
        return _first_of(joined(runs) if runs else np.zeros(0, RECORD), after, enough)
    left = [part for run in runs if (part := run[rows_upto(run, *after) :]).size]
    if not left:
        return np.zeros(0, RECORD), None
    frontier = _frontier(left, enough)
    parts = [part[: rows_upto(part, *frontier)] for part in left]
    is_all = sum(map(len, parts)) == sum(map(len, left))
    return in_order(joined(parts)), None if is_all else frontier


def _first_of(rows: Rows, after: Key, enough: int) -> tuple[Rows, Key | None]:
    """The same of rows in no order: `enough`, and all with the due of the last of them."""
    at = np.flatnonzero(are_beyond(rows["due_ms"], rows["offset"], after))
    if at.size <= enough:
        return in_order(rows.take(at)), None
    dues_ms = rows["due_ms"][at]
    last_ms = int(np.partition(dues_ms, enough - 1)[enough - 1])
    return in_order(rows.take(at[dues_ms <= last_ms])), (last_ms, LAST_OFFSET)


def _frontier(runs: Sequence[Rows], enough: int) -> Key:
    """How far the runs can be merged with `enough` rows of the first one, MERGED_ROWS of all."""
    heads = [key_at(run, 0) for run in runs]
    first = runs[heads.index(min(heads))]
    pivot = key_at(first, min(enough, first.size) - 1)
    rivals = [run for run, head in zip(runs, heads, strict=True) if head <= pivot]
    share = max(LEAST_ROWS, MERGED_ROWS // len(rivals))
    return min(pivot, *(key_at(run, min(share, run.size) - 1) for run in rivals))
