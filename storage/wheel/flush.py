"""Writing the wheel: what leaves memory goes to the log, and the log is kept small."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import numpy as np

from storage.counts import Counts
from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, Checkpoint
from storage.memtable import Memtable
from storage.options import RECORD_BYTES
from storage.store import Column
from storage.tiered_store import Ledger
from storage.wheel.loader import NOWHERE, SlotLoader
from storage.wheel.log import (
    Rows,
    Run,
    TimerLog,
    in_order,
    joined,
    positions_between,
    slots_at,
    whole_headers_at,
)
from storage.wheel.wheel import ChainWriter, TimerWheel, WheelFiles, checks

# Compaction of the log: chains of passed slots are closed, sparse segments copied forward.

SPARSE_SHARE = 4
"""A segment is copied forward when less than 1/SPARSE_SHARE of its records are live."""
KEPT_SEGMENTS = 4
JOINED_RECORDS = 32_768
"""A longer chain is copied run by run, so that it need not fit in memory."""
FOUND_PER_READ = 16
"""So many runs are found in a segment in the time in which one is read."""
COUNTED_ROWS = 8_192
"""So many rows that ended elsewhere are counted at once: about a millisecond, ten where each of
them lies in a run of its own."""


def close_slots(
    files: WheelFiles, chains: ChainWriter, last: int, elsewhere: "EndedElsewhere"
) -> Iterator[int]:
    """Close the chains of slot numbers up to `last`: what is due later begins a chain anew.

    Yields the records looked at after each piece of work. Changes nothing but `chains`."""
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
    """Records that ended while the store was closed, met when their slots are closed."""

    def __init__(self, before_slot: int, after: tuple[int, int]) -> None:
        self.before_slot = before_slot
        self.after = after
        self._found: list[Rows] = []
        self._found_rows = 0
        self._ended: Counts | None = None

    def note(self, files: WheelFiles, run: Run) -> None:
        """Note what ended in a run of a slot that this process never loaded."""
        if run.slot < self.before_slot:
            rows = files.log.run(run.position).rows[run.upto(*self.after) :]
            if rows.size:
                self._found.append(rows)
                self._found_rows += rows.size
            if self._found_rows >= COUNTED_ROWS:
                self._count(files)

    def count_out(self, files: WheelFiles, counts: Counts) -> None:
        """Take what was noted out of `counts`."""
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
    """Copy the chains that reach into the sparsest segment to the end of the log.

    Chains of slots already begun by `loader` are left alone: they close soon."""
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
    """Runs oldest first as fewer, longer ones, each of one slot."""
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


# One round of writing, in steps small enough to fall between two transactions.

SLICE_ENTRIES = 2048
APPLY_SLOTS = 8192
SORTED_PER_WRITTEN = 16
"""How many dues are joined, or sorted, in the time one entry is written."""


class Flush:
    """The steps, in order:

    1. close the chains of passed slots and copy one sparse segment forward,
    2. write the memtable: bodies, then runs; sum up what the wheel will be,
    3. replace the checkpoint: from here on all of it counts,
    4. point the wheel at the new chains,
    5. serve the memtable's entries from disk, delete files nobody needs, note that 4 is done.

    A crash before 3 leaves log bytes that the checkpoint does not know: they are cut. A crash
    after it is mended by reading the runs from `redo_from` on (storage/FORMAT.md, "Order of
    writing")."""

    def __init__(
        self,
        files: WheelFiles,
        ledger: Ledger,
        loader: SlotLoader,
        memtable: Memtable | None,
        elsewhere: EndedElsewhere,
        coverable: Callable[[], int],
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._loader = loader
        self._memtable = memtable
        self._elsewhere = elsewhere
        self._coverable = coverable
        self._chains = files.chain_writer()
        self._fresh: list[tuple[Column, Column]] = []
        self._checks = files.checkpoint.checks

    def steps(self) -> Iterator[int]:
        """Do it; yields about how many entries each step was worth."""
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
            raise StoreDamaged(f"after its checkpoint, {self._files.folder}: {error}") from error

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
        order = np.lexsort((columns.offsets, columns.dues_ms))
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
        """Give up before the checkpoint: as if nothing had been written.

        What fails of it does no harm: the log cuts itself again before it is written to."""
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


# Bringing wheel and log to the checkpoint: what it confirmed is finished, the rest is cut.
#
# A run that is not whole below the end of the log is damage. What lies beyond it is cut unread: a
# crash or a power cut may leave anything there (storage/FORMAT.md#order-of-writing).


def mend_wheel(
    wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint, *, has_all_runs: bool = False
) -> None:
    """Open the log's segments; empty the closed chains, and point at the newest runs, unless the
    wheel is known to have them all.

    Raises StoreDamaged when slots and log then disagree, or where a run does not pass its CRC."""
    log.end = checkpoint.log_end
    for number in sorted(checkpoint.live):
        log.attach(number)
    wheel.clear_before(checkpoint.closed)
    redo_from = log.end if has_all_runs else checkpoint.redo_from
    for positions in positions_between(log, redo_from, log.end):
        headers = whole_headers_at(log, positions)
        _store_again(wheel, slots_at(log, positions), positions, headers)
    _check_slots(wheel, log, checkpoint)


def cut_log(log: TimerLog) -> None:
    """Remove what a crash left beyond the end of the log, and segments nobody needs."""
    for path in log.folder.glob("*.log"):
        if not path.stem.isdigit() or int(path.stem) not in log.segments:
            path.unlink()
    log.cut(log.end)


def _store_again(wheel: TimerWheel, slots: Column, positions: Column, headers: Rows) -> None:
    """Point at these runs, of which a later one of the same place counts: numpy stores in order."""
    columns = [headers["time"], positions, headers["chain"].astype(np.int64)]
    wheel.store(slots % wheel.slots, np.column_stack(columns))


def _check_slots(wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint) -> None:
    """Only once what a kill may have torn has been stored again."""
    used = wheel.used()
    cells = wheel.cells.take(used)
    broken = used[checks(cells) != cells["check"]]
    if broken.size:
        raise StoreDamaged(f"wheel slot {broken[0]} and {broken.size - 1} others fail their check")
    held, live = int(cells["count"].sum(dtype=np.int64)), sum(checkpoint.live.values())
    if held != live:
        raise StoreDamaged(f"the wheel counts {held} records, the checkpoint {live}")
    if wheel.sum_of_checks() != checkpoint.checks:
        raise StoreDamaged("slots of the wheel differ from what the checkpoint says")
    beyond = (cells["last"] >= log.end) | (cells["last"] < 0)
    beyond &= cells["count"] > 0
    if beyond.any():
        raise StoreDamaged(f"{int(beyond.sum())} wheel slots point outside the log")
