"""The timer wheel: slots of time, each the head of a chain in the log."""

import errno
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.counts import UNNAMED, Counts, TargetCounter, TargetNumbers, resolved
from storage.errors import StoreDamaged
from storage.folder import Checkpoint, Files, boot_id
from storage.memtable import Columns
from storage.options import RECORD_BYTES, SLOT_BYTES, Options
from storage.store import Column, Entry
from storage.wheel.log import (
    EMPTY,
    HEADER,
    RECORD,
    RUN_MAGIC,
    BodyFiles,
    Head,
    Rows,
    Run,
    TimerLog,
    boundaries,
    file_keys,
    locate,
    positions_between,
    seal,
    slots_at,
    spans_of,
    stretches,
    whole_headers_at,
)

SLOT = np.dtype([("time", "<i8"), ("last", "<i8"), ("count", "<u4"), ("check", "<u4")])
assert SLOT.itemsize == SLOT_BYTES
WORDS = SLOT.itemsize // 8
_FIELDS = ("time", "last", "count")
FIRST_WINDOW_SLOTS, LAST_WINDOW_SLOTS = 16, 8192
BLOCK_SLOTS = 128
"""Slots in a block of the wheel. A block takes three quarters of a memory page."""
_FACTORS = tuple(
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
)


def checks(slots: Rows) -> npt.NDArray[np.uint32]:
    """Return the check number of each slot. It is 0 for an empty slot."""
    mixed = np.zeros(slots.shape, np.uint64)
    for name, factor in zip(_FIELDS, _FACTORS, strict=True):
        mixed ^= slots[name].astype(np.uint64) * factor
    return (mixed >> np.uint64(32)).astype(np.uint32)


def slot_rows(heads: Column) -> Rows:
    """Return slots for `heads` (n x 3, fields of `Head`). Heads without records are empty."""
    rows = np.zeros(len(heads), SLOT)
    held = heads[:, 2:] > 0
    for column, name in enumerate(_FIELDS):
        rows[name] = heads[:, column] * held[:, 0]
    rows["check"] = checks(rows)
    return rows


class TimerWheel:
    """A circular array of slots. Slot number n (fires_ms // precision_ms) has the place n % slots.

    Slot numbers that are a lap apart share a chain. A block of slots that was never written is not
    `touched`. Such a block is all zeros. It is never read, so it takes no memory."""

    def __init__(
        self,
        cells: Rows,
        files: Files,
        touched: npt.NDArray[np.bool_] | None = None,
        mapped: mmap.mmap | None = None,
    ) -> None:
        self.cells = cells
        self._mapped = mapped
        self.slots = len(cells)
        self._files = files
        blocks = -(-self.slots // BLOCK_SLOTS)
        self._touched = np.ones(blocks, np.bool_) if touched is None else touched

    def used(self) -> Column:
        words = self.cells.view(np.int64).reshape(self.slots, WORDS).T
        found = [
            np.flatnonzero(reduce(np.bitwise_or, words[:, piece])) + piece.start
            for piece in self._touched_pieces()
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def held(self) -> Column:
        counts = self.cells["count"]
        found = [np.flatnonzero(counts[piece]) + piece.start for piece in self._touched_pieces()]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def next_touched(self, place: int) -> int:
        block = place // BLOCK_SLOTS
        if place >= self.slots or self._touched[block]:
            return place
        ahead = self._touched[block:]
        step = int(ahead.argmax())
        return (block + step) * BLOCK_SLOTS if ahead[step] else self.slots

    def head(self, slot: int) -> Head:
        return self.heads(np.array([slot % self.slots]))[0]

    def heads(self, at: Column) -> list[Head]:
        found = self.cells.take(at)
        return [
            Head(time, last, count) if count else EMPTY for time, last, count, _ in found.tolist()
        ]

    def table(self, at: Column) -> Column:
        cells = self.cells.take(at)
        return np.column_stack([cells[name] for name in _FIELDS]).astype(np.int64)

    def store(self, at: Column, heads: Column) -> None:
        if at.size:
            self._touched[at // BLOCK_SLOTS] = True
            self._files.poke(self.cells, at, slot_rows(heads))

    def sum_of_checks(self) -> int:
        found = self.cells["check"]
        return sum(int(found[piece].sum(dtype=np.int64)) for piece in self._touched_pieces())

    def change_of_sum(self, at: Column, heads: Column) -> int:
        new, old = slot_rows(heads)["check"], self.cells.take(at)["check"]
        return int(new.sum(dtype=np.int64) - old.sum(dtype=np.int64))

    def clear_before(self, slot: int) -> None:
        """Empty slots whose `time` is below `slot`. A half-emptied slot has such a `time`, too."""
        used = self.used()
        stale = used[self.cells["time"][used] < slot]
        self.store(stale, np.zeros((stale.size, len(_FIELDS)), np.int64))

    def begun_in(self, first: int, last: int) -> list[int]:
        width = max(0, min(last - first + 1, self.slots))
        if width <= LAST_WINDOW_SLOTS:
            places = np.arange(first, first + width) % self.slots
        else:
            held_from_first = self._rolled(self.held(), first)
            places = held_from_first[(held_from_first - first) % self.slots < width]
        cells = self.cells.take(places)
        held: list[int] = places[(cells["count"] > 0) & (cells["time"] <= last)].tolist()
        return held

    def begun_from(self, slot: int) -> tuple[Column, Column]:
        """Return lowest slot number and record count of chains that begin at `slot` or later."""
        held = self._rolled(self.held(), slot)
        times, counts = self.cells["time"][held], self.cells["count"][held]
        is_ahead = times >= slot
        return times[is_ahead], counts[is_ahead].astype(np.int64)

    def next_slot(self, first: int, last: int, later: Mapping[int, int]) -> int | None:
        """Return the first slot number in [first, last] that may have records.

        `later` has the next slot number of each chain that was read but not closed, by place."""
        lap_end = min(last, first + self.slots - 1)
        start, width = first, FIRST_WINDOW_SLOTS
        while start <= lap_end:
            place = start % self.slots
            if (touched := self.next_touched(place)) > place:
                start += touched - place
                continue
            numbers = np.arange(start, min(start + width, lap_end + 1))
            cells = self.cells.take(numbers % self.slots)
            maybe = (cells["count"] > 0) & (cells["time"] <= numbers)
            for number in numbers[maybe].tolist():
                if later.get(number % self.slots, number) <= number:
                    return int(number)
            start, width = start + width, min(2 * width, LAST_WINDOW_SLOTS)
        if lap_end == last:
            return None
        times = self.cells["time"][self.held()]
        times = times[times > lap_end]
        ahead = [int(times.min())] if times.size else []
        lowest = min([*ahead, *(slot for slot in later.values() if slot > lap_end)], default=None)
        return lowest if lowest is not None and lowest <= last else None

    def _rolled(self, places: Column, first: int) -> Column:
        return np.roll(places, -int(np.searchsorted(places, first % self.slots)))

    def _touched_pieces(self) -> Iterator[slice]:
        for block, blocks in stretches(self._touched.astype(np.int64)):
            if self._touched[block]:
                piece = slice(block * BLOCK_SLOTS, min((block + blocks) * BLOCK_SLOTS, self.slots))
                self._read_ahead(piece)
                yield piece

    def _read_ahead(self, piece: slice) -> None:
        """Ask the system to read these slots ahead. Reading page after page takes longer."""
        if self._mapped is not None:
            start = piece.start * SLOT.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            with suppress(OSError):
                self._mapped.madvise(mmap.MADV_WILLNEED, start, piece.stop * SLOT.itemsize - start)


def map_wheel(path: Path, slots: int, files: Files) -> TimerWheel:
    """Open or create the wheel file. Without MADV_RANDOM some systems read 8 MB for one page."""
    size_bytes = slots * SLOT.itemsize
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(fd).st_size < size_bytes:
            files.allocate(fd, size_bytes)
        mapped = mmap.mmap(fd, size_bytes)
        touched = _written_blocks(fd, size_bytes)
    finally:
        os.close(fd)
    with suppress(OSError):
        mapped.madvise(mmap.MADV_RANDOM)
    return TimerWheel(np.frombuffer(mapped, SLOT), files, touched, mapped)


def _written_blocks(fd: int, size_bytes: int) -> npt.NDArray[np.bool_] | None:
    """Return which blocks were ever written, or None if unknown. Other blocks are zeros."""
    block_bytes = BLOCK_SLOTS * SLOT.itemsize
    written = np.zeros(-(-size_bytes // block_bytes), np.bool_)
    end = 0
    try:
        while end < size_bytes:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
            written[start // block_bytes : -(-end // block_bytes)] = True
    except OSError as error:
        return written if error.errno == errno.ENXIO else None
    return written


def copy_wheel(path: Path) -> TimerWheel:
    """Read the wheel into memory, for inspection."""
    return TimerWheel(np.fromfile(path, SLOT), Files())


HEAD_FIELDS = len(Head._fields)
FIRST_HEADS = 4
"""Initial room for heads. It is small, so that every test of a flush makes it grow."""


class ChainWriter:
    """The runs and chains written since the last checkpoint. Cutting the log undoes them."""

    def __init__(self, wheel: TimerWheel, log: TimerLog) -> None:
        self.live: Counter[int] = Counter()
        """For each segment: records that became live, minus records that became dead."""
        self._wheel = wheel
        self._log = log
        self._index: npt.NDArray[np.int32] = np.full(wheel.slots, -1, np.int32)
        self._places = np.zeros(FIRST_HEADS, np.int64)
        self._heads = np.zeros((FIRST_HEADS, HEAD_FIELDS), np.int64)
        self._changed = 0

    def head(self, slot: int) -> Head:
        place = slot % self._wheel.slots
        at = int(self._index[place])
        if at < 0:
            return self._wheel.head(place)
        head = Head(*self._heads[at].tolist())
        return head if head.records else EMPTY

    def restart(self, slot: int, dead: Mapping[int, int]) -> None:
        """Begin a new chain in this place. `dead` counts the old chain's records by segment."""
        for number, records in dead.items():
            self.live[number] -= records
        at = self._rows_of(np.array([slot % self._wheel.slots]))  # may replace self._heads
        self._heads[at] = EMPTY

    def changes(self, most: int) -> Iterator[tuple[Column, Column]]:
        for start in range(0, self._changed, most):
            end = min(start + most, self._changed)
            yield self._places[start:end], self._heads[start:end]

    def write(self, rows: Rows) -> tuple[Column, Column]:
        """Append sorted rows. Return slot number and position of each run."""
        slots = rows["fires_ms"] // self._log.precision_ms
        laps: list[tuple[Column, Column]] = []
        start = 0
        while start < rows.size:
            # Each `_append` gets rows of at most one lap, in which no slot numbers share a place.
            end = int(np.searchsorted(slots, slots[start] + self._wheel.slots))
            laps.append(self._append(rows[start:end], slots[start:end]))
            start = end
        if len(laps) == 1:
            return laps[0]
        return np.concatenate([lap[0] for lap in laps]), np.concatenate([lap[1] for lap in laps])

    def _append(self, rows: Rows, slots: Column) -> tuple[Column, Column]:
        firsts, counts = boundaries(slots)
        headers = firsts + np.arange(firsts.size)
        block = _block(rows, headers)
        base = self._log.reserve(block.size * RECORD_BYTES)
        numbers = slots[firsts]
        positions = base + headers * RECORD_BYTES
        self._link(block.view(HEADER), headers, numbers, positions, counts)
        self._log.write(seal(block, headers, counts))
        self.live[self._log.number(base)] += rows.size
        return numbers, positions

    def _link(
        self, block: Rows, headers: Column, numbers: Column, positions: Column, counts: Column
    ) -> None:
        at = self._rows_of(numbers % self._wheel.slots)
        old = self._heads[at]
        chained = old[:, 2] > 0
        new = np.empty_like(old)
        new[:, 0] = np.where(chained, np.minimum(old[:, 0], numbers), numbers)
        new[:, 1] = positions
        new[:, 2] = old[:, 2] * chained + counts
        filled = np.zeros(headers.size, HEADER)
        filled["magic"] = RUN_MAGIC
        filled["prev"] = np.where(chained, old[:, 1], -1)
        filled["time"] = new[:, 0]
        filled["chain"] = new[:, 2]
        filled["count"] = counts
        block.put(headers, filled)
        self._heads[at] = new

    def _rows_of(self, places: Column) -> Column:
        at = self._index[places].astype(np.int64)
        unseen = at < 0
        fresh = int(np.count_nonzero(unseen))
        if fresh:
            self._make_room(fresh)
            numbers = np.arange(self._changed, self._changed + fresh)
            self._places[numbers] = places[unseen]
            self._heads[numbers] = self._wheel.table(places[unseen])
            self._index[places[unseen]] = numbers
            self._changed += fresh
            at[unseen] = numbers
        return at

    def _make_room(self, fresh: int) -> None:
        lacking = self._changed + fresh - self._places.size
        if lacking > 0:
            more = max(lacking, self._places.size)
            self._places = np.concatenate((self._places, np.zeros(more, np.int64)))
            self._heads = np.concatenate((self._heads, np.zeros((more, HEAD_FIELDS), np.int64)))


def _block(rows: Rows, headers: Column) -> Rows:
    block = np.zeros(rows.size + headers.size, RECORD)
    records = np.ones(block.size, np.bool_)
    records[headers] = False
    block.put(np.flatnonzero(records), rows)
    return block


LOG, BODIES, STORED_TO = "log", "bodies", "stored-to"


class WheelFiles:
    """Wheel, log and bodies of one folder."""

    def __init__(
        self,
        folder: Path,
        options: Options,
        files: Files,
        wheel: TimerWheel,
        log: TimerLog,
        checkpoint: Checkpoint,
        numbers: TargetNumbers,
    ) -> None:
        self.folder = folder
        self.options = options
        self.files = files
        self.wheel = wheel
        self.log = log
        self.bodies = BodyFiles(folder / BODIES, files)
        self.numbers = numbers
        self.checkpoint = checkpoint
        self.boot_id = boot_id()
        """Boot id for the next checkpoint. Data written before this boot has been checked."""
        self._stored_to = -1

    def chain(self, slot: int, head: Head, *, checked: bool = True) -> Iterator[Run]:
        """Yield the runs of slot number `slot`'s chain, newest first. Raises StoreDamaged."""
        for run in self.log.chain(head, checked=checked):
            if (run.slot - slot) % self.wheel.slots:
                raise StoreDamaged(
                    f"{self.log.folder}: the run at {run.position} belongs to another slot"
                )
            yield run

    def rows_for(self, entries: Columns, watermark_ms: int) -> Rows:
        rows = np.zeros(len(entries.bodies), RECORD)
        rows["fires_ms"] = entries.times_ms
        rows["offset"] = entries.offsets
        rows["target"] = entries.targets
        rows["length"] = np.fromiter(map(len, entries.bodies), np.int64, rows.size)
        rows["crc"] = entries.crcs
        self._write_bodies(rows, spans_of(entries.times_ms, watermark_ms), entries.bodies)
        return rows

    def entries_of(self, rows: Rows) -> list[Entry]:
        bodies = self.bodies.read(rows)
        with _named():
            targets, bodies = resolved(self.numbers.by_number, rows["target"], bodies)
        times_ms, offsets = rows["fires_ms"].tolist(), rows["offset"].tolist()
        return list(zip(times_ms, offsets, targets, bodies, strict=True))

    def count_ended(self, counts: Counts, rows: Rows) -> None:
        counts.subtract(rows["offset"], *counted_by_name(rows, self.numbers))

    def counts_of(self, rows: Rows) -> Counts:
        counts = Counts(*counted_by_name(rows, self.numbers))
        counts.chunks.add(rows["offset"])
        return counts

    def note_stored(self) -> None:
        """Note in a file that the wheel has all runs. Then an opening need not read them again."""
        log_end = self.checkpoint.log_end
        if log_end != self._stored_to:
            with suppress(OSError):
                self.files.replace(self.folder / STORED_TO, b"%d" % log_end)
                self._stored_to = log_end

    def close(self) -> None:
        self.log.close()
        self.bodies.close()

    def _write_bodies(self, rows: Rows, spans: Column, bodies: list[bytes]) -> None:
        keys = file_keys(rows["fires_ms"], spans)
        positions = np.cumsum(rows["length"], dtype=np.int64) - rows["length"]
        for first, count in stretches(keys):
            base = self.bodies.append(int(keys[first]), bodies[first : first + count])
            positions[first : first + count] += base - positions[first]
        locate(rows, spans, positions)


def has_all_runs(folder: Path, log_end: int) -> bool:
    """Return whether the wheel is known to have all runs before `log_end`."""
    try:
        return int((folder / STORED_TO).read_bytes()) == log_end
    except (OSError, ValueError):
        return False


def counted_by_name(rows: Rows, numbers: TargetNumbers) -> tuple[TargetCounter, TargetCounter]:
    """Count rows, and the bytes of their bodies, by target."""
    met, which, counts = np.unique(rows["target"], return_inverse=True, return_counts=True)
    sizes = np.bincount(which, rows["length"], met.size).astype(np.int64)
    return _counter(met, counts, numbers), _counter(met, sizes, numbers)


def _counter(met: Column, amounts: Column, numbers: TargetNumbers) -> TargetCounter:
    by_number = dict(zip(met.tolist(), amounts.tolist(), strict=True))
    others = by_number.pop(UNNAMED, 0)
    names = numbers.by_number
    with _named():
        by_name = {names[number]: amount for number, amount in by_number.items() if amount}
    return TargetCounter(numbers, by_name, others)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except KeyError as number:
        raise StoreDamaged(
            f"a record of the log names target {number}, which has no name"
        ) from None


# Below the end of the log each run must be whole. Bytes beyond the end are cut unread, because a
# crash may leave anything there (storage/FORMAT.md#order-of-writing).


def mend_wheel(
    wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint, *, has_all_runs: bool = False
) -> None:
    """Attach segments, empty closed chains. Unless `has_all_runs`, point slots at the last runs."""
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
    """Remove bytes beyond the end of the log, and unneeded segments."""
    for path in log.folder.glob("*.log"):
        if not path.stem.isdigit() or int(path.stem) not in log.segments:
            path.unlink()
    log.cut(log.end)


def _store_again(wheel: TimerWheel, slots: Column, positions: Column, headers: Rows) -> None:
    """Point slots at these runs. If runs share a place, the last run wins (numpy keeps order)."""
    columns = [headers["time"], positions, headers["chain"].astype(np.int64)]
    wheel.store(slots % wheel.slots, np.column_stack(columns))


def _check_slots(wheel: TimerWheel, log: TimerLog, checkpoint: Checkpoint) -> None:
    """Check the slots, after half-written slots were stored again."""
    used = wheel.used()
    cells = wheel.cells.take(used)
    broken = used[checks(cells) != cells["check"]]
    if broken.size:
        raise StoreDamaged(f"wheel slot {broken[0]} and {broken.size - 1} others fail their check")
    held, live = int(cells["count"].sum(dtype=np.int64)), sum(checkpoint.live.values())
    if held != live:
        raise StoreDamaged(f"the wheel counts {held} records, the checkpoint {live}")
    if wheel.sum_of_checks() != checkpoint.checks:
        raise StoreDamaged("slots of the wheel differ from the checkpoint")
    beyond = (cells["last"] >= log.end) | (cells["last"] < 0)
    beyond &= cells["count"] > 0
    if beyond.any():
        raise StoreDamaged(f"{int(beyond.sum())} wheel slots point outside the log")
