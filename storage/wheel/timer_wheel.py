"""The timer wheel: a mapped file of slots, each pointing at its chain of runs in the log."""

import errno
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.shard.files import Files
from storage.store import Column
from storage.wheel.log.records import EMPTY, Head, Rows, stretches

SLOT = np.dtype([("time", "<i8"), ("last", "<i8"), ("count", "<u4"), ("check", "<u4")])
WORDS = SLOT.itemsize // 8
_FIELDS = ("time", "last", "count")
FIRST_WINDOW_SLOTS, LAST_WINDOW_SLOTS = 16, 8192
BLOCK_SLOTS = 128
"""Three quarters of a page of memory."""
_FACTORS = tuple(
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
)


def checks(slots: Rows) -> npt.NDArray[np.uint32]:
    """The check number each slot must carry; 0 for an all-zero (empty) slot."""
    mixed = np.zeros(slots.shape, np.uint64)
    for name, factor in zip(_FIELDS, _FACTORS, strict=True):
        mixed ^= slots[name].astype(np.uint64) * factor
    return (mixed >> np.uint64(32)).astype(np.uint32)


def slot_rows(heads: Column) -> Rows:
    """The slots for `heads` (n x 3: the fields of `Head`), checks included.

    A head without records gives an all-zero slot."""
    rows = np.zeros(len(heads), SLOT)
    held = heads[:, 2:] > 0
    for column, name in enumerate(_FIELDS):
        rows[name] = heads[:, column] * held[:, 0]
    rows["check"] = checks(rows)
    return rows


class TimerWheel:
    """`slots` slots reused circularly: slot number n (due // precision) lives at n % slots.

    Records more than a lap ahead wait in the same chain. `cells` is the mapped array (or a copy,
    for those who only look). `touched`: the blocks of slots that may be other than zero; of the
    others nothing is read, so that they take no memory. None: all may be. `mapped`: the file, of
    which the system reads on behind no slot that is touched (`map_wheel`)."""

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
        """Places of the slots that are not all zero."""
        words = self.cells.view(np.int64).reshape(self.slots, WORDS).T
        found = [
            np.flatnonzero(reduce(np.bitwise_or, words[:, piece])) + piece.start
            for piece in self._touched_pieces()
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def held(self) -> Column:
        """Places of the slots that have a chain."""
        counts = self.cells["count"]
        found = [np.flatnonzero(counts[piece]) + piece.start for piece in self._touched_pieces()]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def next_touched(self, place: int) -> int:
        """The first place from this one on where a slot may be other than zero; `slots`: none."""
        block = place // BLOCK_SLOTS
        if place >= self.slots or self._touched[block]:
            return place
        ahead = self._touched[block:]
        step = int(ahead.argmax())
        return (block + step) * BLOCK_SLOTS if ahead[step] else self.slots

    def head(self, slot: int) -> Head:
        """The chain that keeps slot number `slot`; EMPTY when there is none."""
        return self.heads(np.array([slot % self.slots]))[0]

    def heads(self, at: Column) -> list[Head]:
        """The chains at these places (slot numbers modulo slots)."""
        found = self.cells.take(at)
        return [
            Head(time, last, count) if count else EMPTY for time, last, count, _ in found.tolist()
        ]

    def table(self, at: Column) -> Column:
        """time, last, records of these places as columns; records 0: no chain."""
        cells = self.cells.take(at)
        return np.column_stack([cells[name] for name in _FIELDS]).astype(np.int64)

    def store(self, at: Column, heads: Column) -> None:
        """Point these places at other chains (n x 3: the fields of `Head`)."""
        if at.size:
            self._touched[at // BLOCK_SLOTS] = True
            self._files.poke(self.cells, at, slot_rows(heads))

    def sum_of_checks(self) -> int:
        """Of all slots: no two states of a wheel that follow each other have the same, but by a
        chance of one in 2^32."""
        found = self.cells["check"]
        return sum(int(found[piece].sum(dtype=np.int64)) for piece in self._touched_pieces())

    def change_of_sum(self, at: Column, heads: Column) -> int:
        """What storing these `heads` at these places, all different, will add to it."""
        new, old = slot_rows(heads)["check"], self.cells.take(at)["check"]
        return int(new.sum(dtype=np.int64) - old.sum(dtype=np.int64))

    def clear_before(self, slot: int) -> None:
        """Empty every place whose chain was closed because it began below slot number `slot`; also
        where a kill tore the slot as it was emptied, which leaves a `time` no higher than before.
        """
        used = self.used()
        stale = used[self.cells["time"][used] < slot]
        self.store(stale, np.zeros((stale.size, len(_FIELDS)), np.int64))

    def begun_in(self, first: int, last: int) -> list[int]:
        """Every place whose chain's lowest slot number lies in [first, last], in their order."""
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
        """Lowest slot number and records of each chain that begins at slot number `slot` or
        later; in order, but for chains that begin laps ahead."""
        held = self._rolled(self.held(), slot)
        times, counts = self.cells["time"][held], self.cells["count"][held]
        is_ahead = times >= slot
        return times[is_ahead], counts[is_ahead].astype(np.int64)

    def next_slot(self, first: int, last: int, later: Mapping[int, int]) -> int | None:
        """The first slot number in [first, last] whose chain may hold records of it.

        `later` has, for places whose chain was read but not closed yet, the lowest slot number
        still ahead in it."""
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
        """Places in their order from that of slot number `first` on."""
        return np.roll(places, -int(np.searchsorted(places, first % self.slots)))

    def _touched_pieces(self) -> Iterator[slice]:
        """The places whose slots may be other than zero, about to be read."""
        for block, blocks in stretches(self._touched.astype(np.int64)):
            if self._touched[block]:
                piece = slice(block * BLOCK_SLOTS, min((block + blocks) * BLOCK_SLOTS, self.slots))
                self._read_ahead(piece)
                yield piece

    def _read_ahead(self, piece: slice) -> None:
        """Its pages, where not in the page cache, take longer one by one."""
        if self._mapped is not None:
            start = piece.start * SLOT.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
            with suppress(OSError):
                self._mapped.madvise(mmap.MADV_WILLNEED, start, piece.stop * SLOT.itemsize - start)


def map_wheel(path: Path, slots: int, files: Files) -> TimerWheel:
    """Open or make the wheel file, shared and writable. Its size is a multiple of 24 bytes.

    Who touches one page of a file would else have the system read on, on some disks for 8 MB: that
    holds up the caller for milliseconds, and fills the cache."""
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
    """The blocks in which a file was ever written; the others are zeros. None where the system
    cannot tell."""
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
    """The wheel's contents in memory, for looking only."""
    return TimerWheel(np.fromfile(path, SLOT), Files())
