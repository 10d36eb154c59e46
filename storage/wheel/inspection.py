"""Readers of chains that load no slot: scans, verify, dump, and the check after a restart."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.counts import UNNAMED
from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, Files, kind_of, read_checkpoint
from storage.memtable import are_beyond
from storage.options import Options
from storage.store import LAST_OFFSET, Column, Entry, Key, Scanned, Wants
from storage.tier import FolderReport, Ledger
from storage.wheel.log import (
    RECORD,
    BodyFiles,
    Head,
    Rows,
    Run,
    TimerLog,
    in_order,
    joined,
    key_at,
    places_of,
    rows_upto,
    stretches,
)
from storage.wheel.wheel import (
    LAST_WINDOW_SLOTS,
    LOG,
    TimerWheel,
    WheelFiles,
    copy_wheel,
    mend_wheel,
)

LAPS = 64
"""Lap numbers are kept modulo LAPS. With default options, 64 laps are over a year."""
FIRST_SLOTS = 256


class ChainLaps:
    """The laps in which each chain has runs. So a scan need not read all chains for each lap."""

    def __init__(self, wheel: TimerWheel) -> None:
        self._wheel = wheel
        self.forget()

    def forget(self) -> None:
        self._last: Column | None = None
        self._laps: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._highest = -1

    def note(self, slot: int, head: Head, slots: Sequence[int]) -> None:
        if self._last is None:
            self._last = np.full(self._wheel.slots, -1, np.int64)
            self._laps = np.zeros(self._wheel.slots, np.uint64)
        place = slot % self._wheel.slots
        bits = 0
        for number in slots:
            bits |= 1 << (number // self._wheel.slots) % LAPS
        self._last[place], self._laps[place] = head.last, bits
        self._highest = max(self._highest, *slots)

    def next_slots(self, slot: int, last: int) -> list[int]:
        """Return the next slot numbers in this lap, up to `last`, that may have records."""
        lap, place = divmod(slot, self._wheel.slots)
        base = lap * self._wheel.slots
        end, width = min(self._wheel.slots, last + 1 - base), FIRST_SLOTS
        while (place := self._wheel.next_touched(place)) < end:
            places = slice(place, min(place + width, end))
            found = np.flatnonzero(self._may_hold(places, lap))
            if found.size:
                slots: list[int] = (found + base + place).tolist()
                return slots
            place, width = place + width, min(2 * width, LAST_WINDOW_SLOTS)
        return []

    def next_lap(self, slot: int) -> int | None:
        """Return the first slot number of the next lap that may have records."""
        slots, lap = self._wheel.slots, slot // self._wheel.slots
        held = self._wheel.held()
        unread = self._wheel.cells["time"][held[~self._is_known(held)]]
        laps = [max(int(unread.min()) // slots, lap + 1)] if unread.size else []
        bits = int(np.bitwise_or.reduce(self._laps)) if self._laps.size else 0
        ahead = (lap + step for step in range(1, LAPS + 1))
        laps += [one for one in ahead if bits >> one % LAPS & 1 and one <= self._highest // slots][
            :1
        ]
        return min(laps) * slots if laps else None

    def _may_hold(self, places: slice, lap: int) -> npt.NDArray[np.bool_]:
        cells = self._wheel.cells[places]
        numbers = np.arange(places.start, places.stop) + lap * self._wheel.slots
        maybe: npt.NDArray[np.bool_] = (cells["count"] > 0) & (cells["time"] <= numbers)
        if self._last is not None:
            reaches = self._laps[places] >> np.uint64(lap % LAPS) & np.uint64(1)
            maybe &= ~self._is_known(places) | reaches.astype(np.bool_)
        return maybe

    def _is_known(self, places: slice | Column) -> npt.NDArray[np.bool_]:
        last = self._wheel.cells["last"][places]
        if self._last is None:
            return np.zeros(last.size, np.bool_)
        known: npt.NDArray[np.bool_] = self._last[places] == last
        return known


MERGED_ROWS = 8_192
"""Rows sorted together, in about 1 ms."""
LEAST_SCANNED_ROWS = 4
BUDGET = 512
"""At most this many runs are read in one scan. Each takes some microseconds."""
SLOT_COSTS = 2
"""Visiting a slot costs as much as reading this many runs."""
SLOTS_PASSED = 512
"""Passing this many slots costs as much as reading one run."""


class WheelScan:
    """Scans of the chains. Chains hold all pending records on disk, so no slot is loaded."""

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
        enough = max_entries if wants is None else MERGED_ROWS
        runs, upto = self._find(after, until_ms, enough, memory_from)
        rows, frontier = _first_rows(runs, after)
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
        """Return the runs of a chain. In a very long chain, the CRCs of runs are not checked."""
        runs = list(self._files.chain(slot, head, checked=head.records <= MERGED_ROWS))
        if slot >= self._ledger.watermark_ms // self._precision_ms + self._files.wheel.slots:
            self._laps.note(slot, head, [run.slot for run in runs])
        return runs

    def _wanted(self, rows: Rows, wants: Wants) -> Rows:
        if self._ledger.floor:
            rows = rows.compress(rows["offset"] >= self._ledger.floor)
        if wants is None or not rows.size:
            return rows
        names, known = self._files.numbers.by_number, dict[int, bool]({UNNAMED: True})
        numbers = rows["target"].tolist()
        for number in {*numbers} - {*known}:
            known[number] = wants(names[number])
        is_wanted = np.fromiter(map(known.__getitem__, numbers), np.bool_, len(numbers))
        kept: Rows = rows.compress(is_wanted)
        return kept

    def _entries(self, rows: Rows, wants: Wants) -> list[Entry]:
        entries = self._files.entries_of(rows)
        return entries if wants is None else [entry for entry in entries if wants(entry[2])]


def _first_rows(runs: Sequence[Rows], after: Key) -> tuple[Rows, Key | None]:
    """Return rows beyond `after`, and the key up to which they are complete (None: all are)."""
    left = [part for run in runs if (part := run[rows_upto(run, *after) :]).size]
    share = max(LEAST_SCANNED_ROWS, MERGED_ROWS // max(1, len(left)))
    cut = [key_at(run, share - 1) for run in left if run.size > share]
    rows = in_order(joined([np.zeros(0, RECORD), *(run[:share] for run in left)]))
    return rows, min(cut, default=None)


def needed_bytes(rows: Rows) -> dict[int, int]:
    """Return the minimum size of each body file. Raises StoreDamaged for an unknown span."""
    keys, positions = places_of(rows)
    order = keys.argsort(kind="stable")
    ends = (positions + rows["length"])[order]
    return {
        int(keys[order[start]]): int(ends[start : start + count].max())
        for start, count in stretches(keys[order])
    }


def too_short(bodies: BodyFiles, needed: Mapping[int, int]) -> list[str]:
    """Return a sentence for each body file that is too short."""
    return [
        f"{bodies.path(key)} has {bodies.size_bytes(key)} bytes, its records need {need_bytes}"
        for key, need_bytes in sorted(needed.items())
        if bodies.size_bytes(key) < need_bytes
    ]


class BackgroundCheck:
    """A check of all chains after a restart of the machine, which may have lost any writes.

    Loading a slot checks its runs and bodies, but only shortly before entries fire. This check
    finds damage within minutes."""

    def __init__(self, files: WheelFiles, ledger: Ledger) -> None:
        self.is_over = False
        self._files, self._ledger = files, ledger
        places, wheel = files.wheel.held(), files.wheel
        now = ledger.watermark_ms // files.options.precision_ms % wheel.slots
        self._places = np.roll(places, -int(np.searchsorted(places, now)))
        self._steps = self._follow()
        self._rows: list[Rows] = []

    def look(self, budget_records: int) -> None:
        spent = 0
        while spent < budget_records and not self.is_over:
            step = next(self._steps, None)
            self.is_over = step is None
            spent += step or 0
        rows, self._rows = self._rows, []
        if rows:
            self._look_for_bodies(joined(rows))

    def _follow(self) -> Iterator[int]:
        wheel = self._files.wheel
        for place in self._places.tolist():
            yield 1
            head = wheel.head(place)
            try:
                for run in self._files.chain(place, head):
                    self._rows.append(run.rows)
                    yield run.records
            except StoreDamaged:
                # A chain that was rewritten between two steps was checked by the rewriting.
                if wheel.head(place) == head:
                    raise

    def _look_for_bodies(self, rows: Rows) -> None:
        """Check the body files of pending rows. The files of ended rows may be gone."""
        pends = are_beyond(rows["fires_ms"], rows["offset"], self._ledger.ended)
        if lacking := too_short(self._files.bodies, needed_bytes(rows.compress(pends))):
            raise StoreDamaged(lacking[0])


READ_AT_ONCE = 1024
MOST_FINDINGS = 100


class WheelReader:
    """A `FolderReader`. It reads a copy of the wheel, in which slots were mended."""

    def __init__(self, files: WheelFiles) -> None:
        self.checkpoint = files.checkpoint
        self._files = files

    def check(self, report: FolderReport) -> None:
        live = Counter[int]()
        found: list[str] = []
        for place in self._files.wheel.held().tolist():
            try:
                for run in self._files.chain(place, self._files.wheel.head(place)):
                    report.runs += 1
                    live[self._files.log.number(run.position)] += run.records
                    found += [f"the run at {run.position} {why}" for why in self._wrong_with(run)]
            except StoreDamaged as damage:
                found.append(f"wheel slot {place}: {damage}")
        counted = Counter(self.checkpoint.live)
        found += [
            f"{self._files.log.path(number)}: chains have {live[number]} of its records, "
            f"the checkpoint counts {counted[number]}"
            for number in sorted(counted.keys() | live.keys())
            if counted[number] != live[number]
        ]
        report.findings += found[:MOST_FINDINGS]
        report.records, report.segments = live.total(), len(self._files.log.segments)

    def batches(self) -> Iterator[list[Entry]]:
        files, ended = self._files, (self.checkpoint.watermark_ms, self.checkpoint.cursor)
        kept = [np.zeros(0, RECORD)]
        for place in files.wheel.held().tolist():
            chain = files.chain(place, files.wheel.head(place))
            kept += [run.rows[run.upto(*ended) :] for run in chain]
        pending = in_order(joined(kept))
        for start in range(0, pending.size, READ_AT_ONCE):
            yield files.entries_of(pending[start : start + READ_AT_ONCE])

    def _wrong_with(self, run: Run) -> Iterator[str]:
        if run.records > 1:
            times_ms = run.rows["fires_ms"]
            if (times_ms // self._files.log.precision_ms != run.slot).any():
                yield "belongs to another slot"
            due_steps, offset_steps = np.diff(times_ms), np.diff(run.rows["offset"])
            if not ((due_steps > 0) | ((due_steps == 0) & (offset_steps > 0))).all():
                yield "is out of order"


@contextmanager
def look_into_wheel(folder: Path) -> Iterator[WheelReader]:
    """Open the folder for reading. Raises StoreDamaged, or FileNotFoundError without checkpoint."""
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    options, files = Options(**checkpoint.options), Files()
    log = TimerLog(folder / LOG, options.segment_bytes, options.precision_ms, files, writable=False)
    try:
        wheel = copy_wheel(folder / (kind_of(folder) or "wheel"))
        if wheel.slots != options.slots:
            raise StoreDamaged(f"{folder} has a wheel of {wheel.slots} slots")
        mend_wheel(wheel, log, checkpoint)
        numbers = checkpoint.counts.targets.numbers
        found = WheelFiles(folder, options, files, wheel, log, checkpoint, numbers)
        try:
            yield WheelReader(found)
        finally:
            found.bodies.close()
    finally:
        log.close()
