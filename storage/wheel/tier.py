"""The disk tier of the store kind `wheel`: compaction, flush and opening."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from storage.counts import Counts, DueHistogram, Piece
from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, Checkpoint, boot_id, read_checkpoint
from storage.memtable import Memtable
from storage.options import RECORD_BYTES
from storage.store import Column, Due, Key, Scanned, Wants
from storage.tier import Ledger, OpenedTier, Opening
from storage.wheel.inspection import BackgroundCheck, WheelScan
from storage.wheel.loader import LoadedRows, SlotLoader
from storage.wheel.log import (
    NOWHERE,
    Rows,
    Run,
    TimerLog,
    in_order,
    joined,
    positions_between,
    slots_at,
)
from storage.wheel.wheel import (
    BODIES,
    LOG,
    SLOT,
    ChainWriter,
    TimerWheel,
    WheelFiles,
    cut_log,
    has_all_runs,
    map_wheel,
    mend_wheel,
)

SPARSE_SHARE = 4
"""A segment is copied to the log's end when less than 1/SPARSE_SHARE of it is live records."""
KEPT_SEGMENTS = 4
JOINED_RECORDS = 32_768
"""A chain of more records is copied run by run. Its runs are not merged, to bound memory."""
FOUND_PER_READ = 16
"""Finding this many runs in a segment costs as much as reading one run."""
COUNTED_ROWS = 8_192
"""Rows counted in one step. A step takes 1 ms, or 10 ms if each row is a run of its own."""


def close_slots(
    files: WheelFiles, chains: ChainWriter, last: int, elsewhere: "EndedElsewhere"
) -> Iterator[int]:
    """Close chains: drop records of slot numbers up to `last`, and write later records again.

    Changes only `chains`."""
    for place in files.wheel.begun_in(files.checkpoint.closed, last):
        dead = Counter[int]()
        later = yield from _later_runs(files, chains, place, last, elsewhere, dead)
        chains.restart(place, dead)
        yield from _rewrite(chains, later)


def _later_runs(
    files: WheelFiles,
    chains: ChainWriter,
    place: int,
    last: int,
    elsewhere: "EndedElsewhere",
    dead: Counter[int],
) -> Generator[int, None, list[Rows]]:
    later: list[Rows] = []
    for run in files.chain(place, chains.head(place), checked=False):
        dead[files.log.number(run.position)] += run.records
        if run.slot > last:
            later.append(files.log.run(run.position).rows)
        else:
            elsewhere.note(files, run)
        yield run.records
    return later[::-1]


def _rewrite(chains: ChainWriter, runs: list[Rows]) -> Iterator[int]:
    for rows in runs:
        chains.write(rows)
        yield rows.size


class EndedElsewhere:
    """Records that ended while the store was not open, found when their chains are closed."""

    def __init__(self, before_slot: int, after: tuple[int, int]) -> None:
        self.before_slot = before_slot
        self.after = after
        self._found: list[Rows] = []
        self._found_rows = 0
        self._ended: Counts | None = None

    def note(self, files: WheelFiles, run: Run) -> None:
        if run.slot < self.before_slot:
            rows = files.log.run(run.position).rows[run.upto(*self.after) :]
            if rows.size:
                self._found.append(rows)
                self._found_rows += rows.size
            if self._found_rows >= COUNTED_ROWS:
                self._count(files)

    def count_out(self, files: WheelFiles, counts: Counts) -> None:
        if self._found:
            self._count(files)
        if self._ended is not None:
            counts.take_out(self._ended)

    def _count(self, files: WheelFiles) -> None:
        ended = files.counts_of(joined(self._found))
        if self._ended is None:
            self._ended = ended
        else:
            self._ended.merge(ended)
        self._found, self._found_rows = [], 0


def copy_sparse(files: WheelFiles, chains: ChainWriter, loader: SlotLoader) -> Iterator[int]:
    """Copy the chains in the sparsest segment to the log's end, unless their slots are loaded."""
    number = _sparsest(files, chains)
    if number is None:
        return
    start, end = number * files.options.segment_bytes, (number + 1) * files.options.segment_bytes
    seen: set[int] = set()
    for positions in positions_between(files.log, start, min(end, files.log.end)):
        yield positions.size // FOUND_PER_READ
        slots = slots_at(files.log, positions)
        for place in np.unique(slots % files.wheel.slots).tolist():
            if place not in seen:
                seen.add(place)
                yield from _copy_chain(files, chains, place, number, loader)


def _copy_chain(
    files: WheelFiles, chains: ChainWriter, place: int, number: int, loader: SlotLoader
) -> Iterator[int]:
    head = chains.head(place)
    if not head.records or head.time < loader.begun_below:
        return
    positions: list[int] = []
    dead = Counter[int]()
    for run in files.chain(place, head, checked=False):
        positions.append(run.position)
        dead[files.log.number(run.position)] += run.records
        yield 1
    if not dead[number]:
        return
    runs: list[Run] = []
    for position in positions:
        runs.append(files.log.run(position))
        yield runs[-1].records
    chains.restart(place, dead)
    if head.records > JOINED_RECORDS:
        yield from _rewrite(chains, [run.rows for run in reversed(runs)])
    else:
        yield from _rewrite(chains, _merged(runs[::-1], files.options.run_records))


def _merged(runs: list[Run], most_records: int) -> list[Rows]:
    merged: list[Rows] = []
    for slot in sorted({run.slot for run in runs}):
        rows = in_order(joined([run.rows for run in runs if run.slot == slot]))
        merged += [rows[at : at + most_records] for at in range(0, rows.size, most_records)]
    return merged


def _sparsest(files: WheelFiles, chains: ChainWriter) -> int | None:
    live = files.checkpoint.live
    full = files.options.segment_bytes // RECORD_BYTES
    current = files.log.number(files.log.end)
    old = [number for number in files.log.segments if number < current - KEPT_SEGMENTS]
    sparse = [
        (live.get(number, 0) + chains.live[number], number)
        for number in old
        if 0 < live.get(number, 0) + chains.live[number] < full // SPARSE_SHARE
    ]
    return min(sparse)[1] if sparse else None


SLICE_ENTRIES = 2048
APPLY_SLOTS = 8192
SORTED_PER_WRITTEN = 16
"""Joining or sorting this many entries costs as much as writing one entry."""


class Flush:
    """One round of writing, in steps that fit between two transactions.

    1. Close the chains of passed slots and copy one sparse segment.
    2. Write the memtable: bodies, then runs.
    3. Replace the checkpoint. From then on the written bytes are valid.
    4. Point the wheel at the new chains.
    5. Serve the entries from disk, delete old files, note that step 4 is done.

    If a crash came before step 3, the opening cuts the new bytes off. If it came later, the opening
    reads the runs from `redo_from` on again (storage/FORMAT.md#order-of-writing)."""

    def __init__(
        self,
        files: WheelFiles,
        ledger: Ledger,
        loader: SlotLoader,
        memtable: Memtable | None,
        elsewhere: EndedElsewhere,
        coverable: Callable[[], int],
    ) -> None:
        self._files, self._ledger, self._loader = files, ledger, loader
        self._memtable, self._elsewhere, self._coverable = memtable, elsewhere, coverable
        self._chains = ChainWriter(files.wheel, files.log)
        self._fresh: list[tuple[Column, Column]] = []
        self._checks = files.checkpoint.checks

    def steps(self) -> Iterator[int]:
        closed = self._ledger.watermark_ms // self._files.options.precision_ms
        try:
            yield from self._write(closed)
            self._replace_checkpoint(closed)
        except OSError:
            self._undo()
            raise
        yield SLICE_ENTRIES
        try:
            yield from self._point_at_new_chains()
            self._finish()
        except OSError as error:
            raise StoreDamaged(f"{self._files.folder}: after the checkpoint: {error}") from error

    def _write(self, closed: int) -> Iterator[int]:
        yield from close_slots(self._files, self._chains, closed - 1, self._elsewhere)
        yield from copy_sparse(self._files, self._chains, self._loader)
        if self._memtable is not None:
            yield from self._write_memtable(self._memtable)
        for places, heads in self._chains.changes(APPLY_SLOTS):
            self._checks += self._files.wheel.change_of_sum(places, heads)
            yield places.size // SORTED_PER_WRITTEN

    def _write_memtable(self, memtable: Memtable) -> Iterator[int]:
        self._loader.memory_from = self._files.log.end
        columns = yield from memtable.to_columns(SLICE_ENTRIES)
        yield len(columns) // SORTED_PER_WRITTEN
        order = np.lexsort((columns.offsets, columns.times_ms))
        yield order.size // SORTED_PER_WRITTEN
        options = self._files.options
        mean_bytes = max(1, sum(map(len, columns.bodies)) // max(1, order.size))
        size = max(1, min(SLICE_ENTRIES, options.run_records, options.slice_bytes // mean_bytes))
        for start in range(0, order.size, size):
            part = columns.taken(order[start : start + size])
            rows = self._files.rows_for(part, self._ledger.watermark_ms)
            self._fresh.append(self._chains.write(rows))
            yield max(rows.size, SLICE_ENTRIES * rows.size * mean_bytes // options.slice_bytes)

    def _undo(self) -> None:
        self._loader.memory_from = NOWHERE
        with suppress(OSError):
            self._files.log.cut(self._files.checkpoint.log_end)
        self._files.bodies.rewind()

    def _replace_checkpoint(self, closed: int) -> None:
        files, ledger = self._files, self._ledger
        counts = ledger.counts.copy()
        self._elsewhere.count_out(files, counts)
        without_memtable = counts.copy()
        if self._memtable is not None:
            counts.merge(self._memtable.counts)
        live = dict(files.checkpoint.live)
        for number, change in self._chains.live.items():
            live[number] = live.get(number, 0) + change
        checkpoint = Checkpoint(
            options=files.options.bound(),
            covered=self._coverable(),
            watermark_ms=ledger.watermark_ms,
            cursor=ledger.cursor,
            closed=closed,
            log_end=files.log.end,
            redo_from=files.checkpoint.log_end,
            live={number: records for number, records in live.items() if records},
            checks=self._checks,
            boot_id=files.boot_id,
            counts=counts,
        )
        files.files.replace(files.folder / CHECKPOINT, checkpoint.to_bytes())
        files.checkpoint = checkpoint
        files.bodies.confirm()
        ledger.counts = without_memtable
        ledger.covered = checkpoint.covered

    def _point_at_new_chains(self) -> Iterator[int]:
        for places, heads in self._chains.changes(APPLY_SLOTS):
            self._files.wheel.store(places, heads)
            yield places.size

    def _finish(self) -> None:
        files = self._files
        self._loader.finish()
        self._loader.memory_from = NOWHERE
        if self._memtable is not None:
            self._ledger.counts.merge(self._memtable.counts)
        nothing = np.zeros(0, np.int64)
        fresh = [*self._fresh, (nothing, nothing)]
        self._loader.add_flushed(*map(np.concatenate, zip(*fresh, strict=True)))
        files.bodies.drop_before(files.checkpoint.watermark_ms)
        kept = files.checkpoint.live.keys() | {files.log.number(files.log.end)}
        for number in [number for number in files.log.segments if number not in kept]:
            files.log.drop(number)
        files.note_stored()


WHATEVER_IT_TAKES = 2**63
CHECKED_SHARE = 4
"""The check after a restart of the machine gets 1/CHECKED_SHARE of the budget of `load`."""


class WheelTier:
    """The `DiskTier` of the wheel. Slots are loaded in order, shortly before their time."""

    def __init__(
        self, files: WheelFiles, ledger: Ledger, *, is_of_another_boot: bool = False
    ) -> None:
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
        return self._rows.peeked_bytes

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        slot = self._load_until(until_ms, max_entries)
        self._ahead_slot = max(self._ahead_slot, slot + self.files.options.load_ahead_slots)
        return self._rows.peek(until_ms, max_entries, max_bytes)

    def next_fires_ms(self, until_ms: int) -> int | None:
        self._load_until(until_ms, 1)
        return self._rows.next_fires_ms()

    def forget(self, ended: Key) -> None:
        self._load_until(ended[0], WHATEVER_IT_TAKES)
        entries, skipped = self._rows.forget(*ended)
        if entries:
            self._ledger.counts.remove(entries)
        for rows in skipped:
            self.files.count_ended(self._ledger.counts, rows)
        self._loader.count_out_below_floor(ended)

    def count_dues(self, histogram: DueHistogram) -> None:
        precision_ms = self._precision_ms
        loaded, begun_below = len(self._rows), self._loader.begun_below
        first_ms = self._rows.next_fires_ms()
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
        memory_from = self._loader.memory_from
        return self._scan.scan(after, until_ms, wants, max_entries, max_bytes, memory_from)

    def load(self, budget_entries: int) -> int:
        spent = self._loader.load_some(self._ahead_slot, budget_entries)
        if self._check is not None:
            self._check.look(budget_entries // CHECKED_SHARE)
            if self._check.is_over:
                self._check, self.files.boot_id = None, boot_id()
        return spent

    @property
    def is_loading(self) -> bool:
        return self._check is not None or self._loader.is_behind(self._ahead_slot)

    @property
    def wants_compaction(self) -> bool:
        checkpoint = self.files.checkpoint
        passed = self._ledger.watermark_ms // self._precision_ms - checkpoint.closed
        if passed < self.files.options.close_slots:
            return False
        return bool(checkpoint.live) or bool(self.files.bodies)

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        elsewhere = EndedElsewhere(self.loaded_from, self._ledger.counted)
        flush = Flush(self.files, self._ledger, self._loader, memtable, elsewhere, coverable)
        return flush.steps()

    def persist(self) -> None:
        pass

    def close(self) -> None:
        self.files.close()

    def _load_until(self, until_ms: int, enough: int) -> int:
        slot = until_ms // self._precision_ms
        if slot >= self._loader.next_slot:
            self._loader.load_through(slot, enough)
        return slot


def open_wheel(opening: Opening) -> OpenedTier:
    """Open or create wheel, log and bodies. Raises StoreDamaged, StoreMismatch or OSError."""
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
    """Open the wheel and cut the log. Do not read a new wheel, because that loads all its pages."""
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
    return checkpoint.boot_id == boot_id() != ""
