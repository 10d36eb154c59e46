"""The tier on disk of the kind `wheel`: what it answers, and how it is opened."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from storage.counts import UNNAMED, DueHistogram, Piece
from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, Checkpoint, boot_id, read_checkpoint
from storage.memtable import Memtable, are_beyond
from storage.store import LAST_OFFSET, Due, Entry, Key, Scanned, Wants
from storage.tiered_store import Ledger, OpenedTier, Opening
from storage.wheel.flush import EndedElsewhere, Flush, cut_log, mend_wheel
from storage.wheel.inspection import BackgroundCheck
from storage.wheel.loader import LoadedRows, SlotLoader, key_at
from storage.wheel.log import RECORD, Head, Rows, Run, TimerLog, in_order, joined, rows_upto
from storage.wheel.wheel import (
    BODIES,
    LOG,
    SLOT,
    ChainLaps,
    TimerWheel,
    WheelFiles,
    has_all_runs,
    map_wheel,
)

# What pends on disk, read from the wheel's chains alone: nothing that was loaded is touched.

MERGED_ROWS = 8_192
"""So many rows are sorted at once: about a millisecond."""
LEAST_SCANNED_ROWS = 4
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
    frontier = _scan_frontier(left, enough)
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


def _scan_frontier(runs: Sequence[Rows], enough: int) -> Key:
    """How far the runs can be merged with `enough` rows of the first one, MERGED_ROWS of all."""
    heads = [key_at(run, 0) for run in runs]
    first = runs[heads.index(min(heads))]
    pivot = key_at(first, min(enough, first.size) - 1)
    rivals = [run for run, head in zip(runs, heads, strict=True) if head <= pivot]
    share = max(LEAST_SCANNED_ROWS, MERGED_ROWS // len(rivals))
    return min(pivot, *(key_at(run, min(share, run.size) - 1) for run in rivals))


# The wheel as a `DiskTier`: rows of near slots in memory, wheel, log and bodies on disk.

WHATEVER_IT_TAKES = 2**63
CHECKED_SHARE = 4
"""After a restart of the machine one record for so many of the budget is looked at besides."""


class WheelTier:
    """Slots are loaded shortly before their time, in order, and again given back in order.

    `loaded_from`: slot numbers below it had passed when the folder was opened."""

    def __init__(
        self, files: WheelFiles, ledger: Ledger, *, is_of_another_boot: bool = False
    ) -> None:
        """Raises StoreDamaged."""
        self.files = files
        self._ledger = ledger
        self._precision_ms = files.options.precision_ms
        self._rows = LoadedRows(files.entries_of)
        self._loader = SlotLoader(files, ledger, self._rows)
        self._scan = WheelScan(files, ledger)
        self.loaded_from = self._loader.next_slot
        self._ahead_slot = self.loaded_from + files.options.load_ahead_slots
        self._load_until(ledger.watermark_ms, WHATEVER_IT_TAKES)
        self._check = None
        if is_of_another_boot:
            self._check = BackgroundCheck(files, ledger)
            files.boot_id = files.checkpoint.boot_id

    @property
    def peeked_bytes(self) -> int:
        """What the bodies take that were peeked at."""
        return self._rows.peeked_bytes

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first entries due; loads slots up to `until_ms` until there are enough."""
        slot = self._load_until(until_ms, max_entries)
        self._ahead_slot = max(self._ahead_slot, slot + self.files.options.load_ahead_slots)
        return self._rows.peek(until_ms, max_entries, max_bytes)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due; loads slots up to `until_ms` until there is an entry."""
        self._load_until(until_ms, 1)
        return self._rows.next_due_ms()

    def forget(self, ended: Key) -> None:
        """Count out what has ended; slots passed over are loaded for that."""
        self._load_until(ended[0], WHATEVER_IT_TAKES)
        entries, skipped = self._rows.forget(*ended)
        if entries:
            self._ledger.counts.remove(entries)
        for rows in skipped:
            self.files.count_ended(self._ledger.counts, rows)
        self._loader.count_out_below_floor(ended)

    def count_dues(self, histogram: DueHistogram) -> None:
        """Known to the slot; records laps ahead count with their chain."""
        precision_ms = self._precision_ms
        loaded, begun_below = len(self._rows), self._loader.begun_below
        first_ms = self._rows.next_due_ms()
        if first_ms is not None:
            last_ms = max(first_ms, begun_below * precision_ms)
            histogram.add_evenly([Piece(first_ms, last_ms, loaded)])
        later = DueHistogram(histogram.edges_ms)
        slots, records = self.files.wheel.begun_from(begun_below)
        later.add(slots * precision_ms, records)
        histogram.join(later, max(0, self._ledger.counts.total - loaded))

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Read some chains again, those of loaded slots too."""
        memory_from = self._loader.memory_from
        return self._scan.scan(after, until_ms, wants, max_entries, max_bytes, memory_from)

    def load(self, budget_entries: int) -> int:
        """Go on loading the next slots; how many records were read. And with the check, which takes
        nothing of the budget: it must not hold up what has to be written."""
        spent = self._loader.load_some(self._ahead_slot, budget_entries)
        if self._check is not None:
            self._check.look(budget_entries // CHECKED_SHARE)
            if self._check.is_over:
                self._check, self.files.boot_id = None, boot_id()
        return spent

    @property
    def is_loading(self) -> bool:
        """Whether a slot that comes soon is not loaded yet, or the check is not over."""
        return self._check is not None or self._loader.is_behind(self._ahead_slot)

    @property
    def wants_compaction(self) -> bool:
        """Whether enough slots have passed that their chains should be closed."""
        checkpoint = self.files.checkpoint
        passed = self._ledger.watermark_ms // self._precision_ms - checkpoint.closed
        if passed < self.files.options.close_slots:
            return False
        return bool(checkpoint.live) or bool(self.files.bodies)

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """The steps of a `Flush`."""
        elsewhere = EndedElsewhere(self.loaded_from, self._ledger.counted)
        flush = Flush(self.files, self._ledger, self._loader, memtable, elsewhere, coverable)
        return flush.steps()

    def persist(self) -> None:
        """Nothing to do: what was written is with the system already."""

    def close(self) -> None:
        """Give the files back."""
        self.files.close()

    def _load_until(self, until_ms: int, enough: int) -> int:
        """Load up to the slot of `until_ms`, stopping once `enough` rows wait; that slot."""
        slot = until_ms // self._precision_ms
        if slot >= self._loader.next_slot:
            self._loader.load_through(slot, enough)
        return slot


# Opening a folder's wheel: at its checkpoint, and mended.


def open_wheel(opening: Opening) -> OpenedTier:
    """Open or make wheel, log and bodies; the wheel's file has the name of the kind.

    Raises StoreDamaged, StoreMismatch, OSError."""
    folder, options = opening.folder, opening.options
    try:
        found = read_checkpoint(folder / CHECKPOINT)
    except FileNotFoundError:
        found = None
        if (folder / opening.kind).is_dir():
            raise StoreDamaged(f"{folder} was made by an earlier version") from None
        (folder / opening.kind).unlink(missing_ok=True)
    passed = opening.committed.watermark_ms // options.precision_ms
    checkpoint = found or Checkpoint(options.bound(), closed=passed, boot_id=boot_id())
    ledger = opening.ledger(checkpoint, options.bound())
    log = TimerLog(folder / LOG, options.segment_bytes, options.precision_ms, opening.files)
    try:
        numbers = ledger.counts.targets.numbers
        wheel = _opened_wheel(opening, log, found)
        files = WheelFiles(folder, options, opening.files, wheel, log, checkpoint, numbers)
        is_of_another_boot = found is not None and not _is_of_this_boot(found)
        tier = WheelTier(files, ledger, is_of_another_boot=is_of_another_boot)
    except BaseException:
        log.close()
        raise
    return OpenedTier(tier, ledger, options, is_new=found is None)


def _opened_wheel(opening: Opening, log: TimerLog, found: Checkpoint | None) -> TimerWheel:
    """The wheel at the checkpoint that was found, the log cut there. A new one is empty: looking
    would bring all of its file into memory."""
    folder, options = opening.folder, opening.options
    for name in (LOG, BODIES):
        (folder / name).mkdir(exist_ok=True)
    path = folder / opening.kind
    if found is not None:
        _check_wheel_size(path, options.slots * SLOT.itemsize, found)
    wheel = map_wheel(path, options.slots, opening.files)
    if found is not None:
        has_all = _is_of_this_boot(found) and has_all_runs(folder, found.log_end)
        mend_wheel(wheel, log, found, has_all_runs=has_all)
    cut_log(log)
    return wheel


def _check_wheel_size(path: Path, wanted_bytes: int, checkpoint: Checkpoint) -> None:
    size_bytes = path.stat().st_size if path.exists() else 0
    if checkpoint.log_end and size_bytes != wanted_bytes:
        raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {wanted_bytes}")


def _is_of_this_boot(checkpoint: Checkpoint) -> bool:
    """Else writes may have been lost as the machine stopped, in any order."""
    return checkpoint.boot_id == boot_id() != ""
