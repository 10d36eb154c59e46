"""The TimerLog: segments of runs (sorted records of one slot), and the files of their bodies."""

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.folder import Files
from storage.memtable import count_upto
from storage.options import RECORD_BYTES
from storage.store import Column, Key

# The format is in storage/FORMAT.md, "Runs". Rows are copied with `take`, `compress` and `put`,
# because numpy's indexing copies field by field. That takes twenty times as long.

Rows = npt.NDArray[np.void]

RECORD = np.dtype(
    [
        ("fires_ms", "<i8"),
        ("offset", "<i8"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("location_low", "<u4"),
        ("location_high", "<u2"),
        ("target", "<u2"),
    ]
)
"""The location of the body is packed: see `locate`."""
HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("crc", "<u4"),
        ("prev", "<i8"),
        ("time", "<i8"),
        ("chain", "<u4"),
        ("count", "<u4"),
    ]
)
_OPAQUE = np.dtype((np.void, RECORD_BYTES))
RUN_MAGIC = int.from_bytes(b"TLR3", "little")
CRC_FROM = 8
SHORTEST_BYTES = 2 * RECORD_BYTES
"""Size of a run with one record."""
POSITION_BITS = 46
"""Bits of a position in a body file. So a body file is smaller than 64 TiB."""
assert RECORD.itemsize == HEADER.itemsize == RECORD_BYTES


class Head(NamedTuple):
    """The head of a chain, as a wheel slot holds it."""

    time: int
    """Lowest slot number (fires_ms // precision_ms). A chain may hold runs of several laps."""
    last: int
    """Position of the newest run."""
    records: int


EMPTY = Head(-1, -1, 0)
NOWHERE = 2**63 - 1
"""A position beyond all runs."""


class Run(NamedTuple):
    """Records of one slot in the log, in (fires_ms, offset) order."""

    position: int
    slot: int
    """Slot number of all records."""
    prev: int
    """Position of the previous run in the chain, or -1."""
    records: int
    head: Head
    """The content of the wheel slot when this run was the newest of its chain."""
    rows: Rows

    def upto(self, fires_ms: int, offset: int) -> int:
        return rows_upto(self.rows, fires_ms, offset)


def rows_upto(rows: Rows, fires_ms: int, offset: int) -> int:
    """Count the sorted `rows` at or below (fires_ms, offset)."""
    times_ms = rows["fires_ms"]
    if not rows.size or times_ms[0] > fires_ms:
        return 0
    return count_upto(times_ms, rows["offset"], (fires_ms, offset))


def key_at(rows: Rows, index: int) -> Key:
    """Return (fire time, offset) of a row."""
    return int(rows["fires_ms"][index]), int(rows["offset"][index])


def locate(rows: Rows, spans: Column, positions: Column) -> None:
    """Pack the place of each body into its row: span number (SPANS_MS below) and position."""
    rows["location_low"] = positions & 0xFFFFFFFF
    rows["location_high"] = (positions | spans << POSITION_BITS) >> 32


def locations(rows: Rows) -> tuple[Column, Column]:
    """Unpack the span number and position of each row's body."""
    found = rows["location_high"].astype(np.int64) << 32 | rows["location_low"]
    return found >> POSITION_BITS, found & ((1 << POSITION_BITS) - 1)


def in_order(rows: Rows) -> Rows:
    """Return rows in the order (fire time, offset)."""
    ordered: Rows = rows.take(np.lexsort((rows["offset"], rows["fires_ms"])))
    return ordered


def joined(parts: Sequence[Rows]) -> Rows:
    """Join rows as bytes, because numpy would compare the names of all fields."""
    if len(parts) == 1:
        return parts[0]
    rows: Rows = np.concatenate([part.view(_OPAQUE) for part in parts]).view(RECORD)
    return rows


def stretches(column: Column) -> list[tuple[int, int]]:
    """Return start and length of each series of equal values."""
    if not column.size:
        return []
    starts, lengths = boundaries(column)
    return list(zip(starts.tolist(), lengths.tolist(), strict=True))


def boundaries(column: Column) -> tuple[Column, Column]:
    """Return the starts and lengths of series of equal values."""
    changes = np.flatnonzero(column[1:] != column[:-1]) + 1
    edges = np.concatenate(([0], changes, [column.size]))
    return edges[:-1], np.diff(edges)


def seal(block: Rows, headers: Column, counts: Column) -> memoryview:
    """Set the CRC of each run in a block of runs. Return the block's bytes."""
    data = block.view(np.uint8).data
    starts = (headers * RECORD_BYTES + CRC_FROM).tolist()
    ends = ((headers + counts + 1) * RECORD_BYTES).tolist()
    block.view(HEADER)["crc"][headers] = [
        crc32(data[start:end]) for start, end in zip(starts, ends, strict=True)
    ]
    return data


class Segment:
    """A log file of fixed size, read through a mapping. Unwritten bytes are zeros."""

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        files: Files,
        *,
        create: bool = False,
        writable: bool = True,
    ) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._files = files
        flags = os.O_RDWR if writable else os.O_RDONLY
        flags |= os.O_CREAT | os.O_TRUNC if create else 0
        self._fd = os.open(path, flags, 0o644)
        try:
            if writable and os.fstat(self._fd).st_size != size_bytes:
                files.resize(self._fd, size_bytes)
            self.view = mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
        except BaseException:
            self.close()
            raise
        self.cells: Rows = np.frombuffer(self.view, RECORD, len(self.view) // RECORD_BYTES)
        """The whole file as rows. A header is as large as a row."""

    def write(self, offset: int, data: memoryview) -> None:
        self._files.write(self._fd, data, offset)

    def cut(self, offset: int) -> None:
        """Set all bytes from `offset` on to zero."""
        self._files.resize(self._fd, offset)
        self._files.resize(self._fd, self.size_bytes)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_HEADER = Struct("<IIqqIIq")
"""A header and the firing time of the first record after it."""


class TimerLog:
    """Runs in append-only segments.

    A position is the segment number * segment_bytes + the byte in the segment. All runs that one
    `write` appends (a block) lie in one segment."""

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        precision_ms: int,
        files: Files,
        *,
        writable: bool = True,
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.precision_ms = precision_ms
        self.end = 0
        """The log ends here. Bytes from this position on are not valid."""
        self.segments: dict[int, Segment] = {}
        self._files = files
        self._writable = writable
        self._is_cut = True

    def path(self, number: int) -> Path:
        return self.folder / f"{number:010d}.log"

    def number(self, position: int) -> int:
        return position // self.segment_bytes

    def attach(self, number: int) -> None:
        """Open an existing segment. A kill in `cut` may have left the last segment too short."""
        path = self.path(number)
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing, though it has pending records") from None
        last, used_bytes = divmod(self.end, self.segment_bytes)
        least_bytes = used_bytes if number == last and used_bytes else self.segment_bytes
        if not least_bytes <= size_bytes <= self.segment_bytes:
            raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {self.segment_bytes}")
        self.segments[number] = Segment(
            path, self.segment_bytes, self._files, writable=self._writable
        )

    def reserve(self, size_bytes: int) -> int:
        """Return the position for a block of this size, in a new segment if the last lacks room."""
        if not self._is_cut:
            self.cut(self.end)
        number, offset = divmod(self.end, self.segment_bytes)
        if offset + size_bytes > self.segment_bytes:
            number, self.end = number + 1, (number + 1) * self.segment_bytes
        if number not in self.segments:
            self.segments[number] = Segment(
                self.path(number), self.segment_bytes, self._files, create=True
            )
        return self.end

    def write(self, data: memoryview) -> None:
        number, offset = divmod(self.end, self.segment_bytes)
        self.segments[number].write(offset, data)
        self.end += len(data)

    def cut(self, end: int) -> None:
        """Drop everything from `end` on. After an OSError the next write repeats the cut."""
        self.end, self._is_cut = end, False
        number, offset = divmod(end, self.segment_bytes)
        for later in [kept for kept in self.segments if kept * self.segment_bytes >= end]:
            self.drop(later)
        if offset and number in self.segments:
            self.segments[number].cut(offset)
        self._is_cut = True

    def drop(self, number: int) -> None:
        self.segments.pop(number).close()
        self._files.remove(self.path(number))

    def close(self) -> None:
        for segment in self.segments.values():
            segment.close()
        self.segments.clear()

    def run(self, position: int, *, checked: bool = True) -> Run:
        """Read the run at `position`. Raises StoreDamaged unless it is whole."""
        number, offset = divmod(position, self.segment_bytes)
        segment = self.segments.get(number)
        if segment is None or position < 0 or position + SHORTEST_BYTES > self.end:
            raise StoreDamaged(f"{self.folder}: no run can be at position {position}")
        if offset + SHORTEST_BYTES > self.segment_bytes or offset % RECORD_BYTES:
            raise StoreDamaged(f"{segment.path}: no run can be at byte {offset}")
        magic, crc, prev, time, chain, count, fires_ms = _HEADER.unpack_from(segment.view, offset)
        size_bytes = (count + 1) * RECORD_BYTES
        if (
            magic != RUN_MAGIC
            or not count
            or offset + size_bytes > self.segment_bytes
            or prev >= position
        ):
            raise StoreDamaged(f"{segment.path}: no run begins at byte {offset}")
        if checked:
            with memoryview(segment.view) as view:
                found = crc32(view[offset + CRC_FROM : offset + size_bytes])
            if found != crc:
                raise StoreDamaged(f"{segment.path}: the run at byte {offset} fails its CRC")
        rows = np.frombuffer(segment.view, RECORD, count, offset + RECORD_BYTES)
        return Run(
            position, fires_ms // self.precision_ms, prev, count, Head(time, position, chain), rows
        )

    def chain(self, head: Head, *, checked: bool = True) -> Iterator[Run]:
        """Yield the runs of a chain, newest first. Raises StoreDamaged if their counts disagree."""
        position, left = head.last, head.records
        while left > 0:
            run = self.run(position, checked=checked)
            if run.head.records != left or run.records > left:
                raise StoreDamaged(
                    f"{self.folder}: the run at {position} counts {run.head.records} records "
                    f"in its chain where {left} are expected"
                )
            yield run
            position, left = run.prev, left - run.records


# Runs are read as columns. Reading them one by one takes ten times as long.

CELLS_AT_ONCE = 8192
"""Cells read together, in about 1 ms. A run has at least two cells: its header and a record."""


def whole_headers_at(log: TimerLog, positions: Column) -> Rows:
    """Return the headers of the runs. Raises StoreDamaged if a run is not whole."""
    headers = np.zeros(positions.size, HEADER)
    is_whole = np.zeros(positions.size, np.bool_)
    for at, segment, cells in _by_segment(log, positions):
        found = segment.cells.take(cells).view(HEADER)
        headers.put(at, found)
        ends = (cells + found["count"] + 1) * RECORD_BYTES
        begins = (found["magic"] == RUN_MAGIC) & (found["count"] > 0)
        begins &= (found["prev"] < positions[at]) & (ends <= log.segment_bytes)
        with memoryview(segment.view) as view:
            crcs = [
                crc32(view[start + CRC_FROM : end]) if begin else 0
                for start, end, begin in zip(
                    (cells * RECORD_BYTES).tolist(), ends.tolist(), begins.tolist(), strict=True
                )
            ]
        is_whole[at] = begins & (found["crc"] == crcs)
    if not is_whole.all():
        log.run(int(positions[np.argmin(is_whole)]))
        raise StoreDamaged(f"{log.folder} changed while it was read")
    return headers


def slots_at(log: TimerLog, positions: Column) -> Column:
    """Return the slot numbers of the runs, or 0 for a position where no run can be."""
    slots = np.zeros(positions.size, np.int64)
    for at, segment, cells in _by_segment(log, positions):
        slots[at] = segment.cells["fires_ms"][cells + 1] // log.precision_ms
    return slots


def positions_between(log: TimerLog, start: int, stop: int) -> Iterator[Column]:
    """Yield the positions of runs, oldest first. Positions after a damaged run may be wrong."""
    for number in range(start // log.segment_bytes, -(-stop // log.segment_bytes)):
        base = number * log.segment_bytes
        first, last = max(start - base, 0), min(stop - base, log.segment_bytes)
        if number in log.segments:
            for cells in _run_cells(log.segments[number], first // RECORD_BYTES, last):
                yield base + np.array(cells) * RECORD_BYTES


def _run_cells(segment: Segment, first: int, end_byte: int) -> Iterator[list[int]]:
    last = end_byte // RECORD_BYTES
    while first < last:
        headers = segment.cells[first : min(first + CELLS_AT_ONCE, last)].view(HEADER)
        magics, counts = headers["magic"].tolist(), headers["count"].tolist()
        found: list[int] = []
        at = 0
        while at < len(magics) and magics[at]:
            found.append(first + at)
            at += counts[at] + 1
        if found:
            yield found
        if at < len(magics):
            return
        first += at


def _by_segment(log: TimerLog, positions: Column) -> Iterator[tuple[Column, Segment, Column]]:
    numbers, offsets = np.divmod(positions, log.segment_bytes)
    cells, odd = np.divmod(offsets, RECORD_BYTES)
    possible = (positions >= 0) & (positions + SHORTEST_BYTES <= log.end) & (odd == 0)
    possible &= offsets + SHORTEST_BYTES <= log.segment_bytes
    for number in np.unique(numbers[possible]).tolist():
        if number in log.segments:
            at = np.flatnonzero(possible & (numbers == number))
            yield at, log.segments[number], cells[at]


MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SPANS_MS = (MINUTE_MS, HOUR_MS, DAY_MS)
"""The time that one body file covers, by span number."""
REACHES_MS = (HOUR_MS, 7 * DAY_MS)
"""Limits of the time from watermark to firing, by span number. The last span has no limit."""
OPEN_FILES = 16
_KEY_SPANS = len(SPANS_MS)


def spans_of(times_ms: Column, watermark_ms: int) -> Column:
    """Return the span number for each firing time."""
    return np.searchsorted(np.array(REACHES_MS), times_ms - watermark_ms, "right").astype(np.int64)


def file_keys(times_ms: Column, spans: Column) -> Column:
    """Return the key of each entry's body file, made from span and stretch (see `BodyFiles`)."""
    keys: Column = times_ms // np.array(SPANS_MS)[spans] * _KEY_SPANS + spans
    return keys


class BodyFiles:
    """The files of bodies, `<span>-<stretch>.body`. The stretch is fires_ms // SPANS_MS[span]."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder = folder
        self._files = files
        self._sizes: dict[int, int] = {}
        self._known: set[int] = set()
        self._writing: OrderedDict[int, int] = OrderedDict()
        self._reading: OrderedDict[int, mmap.mmap] = OrderedDict()
        self._unconfirmed: dict[int, int] = {}
        self._list()

    def path(self, key: int) -> Path:
        stretch, span = divmod(key, _KEY_SPANS)
        return self.folder / f"{span}-{stretch}.body"

    def append(self, key: int, bodies: list[bytes]) -> int:
        fd = self._writable(key)
        position = self._sizes[key]
        self._unconfirmed.setdefault(key, position)
        data = b"".join(bodies)
        self._files.write(fd, data, position)
        self._sizes[key] = position + len(data)
        return position

    def read(self, rows: Rows) -> list[bytes]:
        found: list[bytes] = []
        for key, positions, part in _by_file(rows):
            found += self._read(key, positions, part)
        return found

    def confirm(self) -> None:
        """Keep the appended bodies, because a checkpoint refers to them now."""
        self._unconfirmed.clear()

    def rewind(self) -> None:
        """Cut off bodies appended since `confirm`. A body that cannot be cut off is never read."""
        for key, size_bytes in self._unconfirmed.items():
            with suppress(OSError):
                self._files.resize(self.path(key), size_bytes)
                self._sizes[key] = size_bytes
        self._unconfirmed.clear()

    def __bool__(self) -> bool:
        return bool(self._known)

    def drop_before(self, watermark_ms: int) -> None:
        for key in [key for key in self._known if _end_ms(key) <= watermark_ms]:
            self._forget(key)
            self._files.remove(self.path(key))

    def size_bytes(self, key: int) -> int:
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def will_need(self, rows: Rows) -> None:
        """Ask the system to read bodies ahead."""
        with suppress(OSError):
            self._will_need(rows)

    def _will_need(self, rows: Rows) -> None:
        for key, positions, part in _by_file(rows):
            first = int(positions.min()) // mmap.PAGESIZE * mmap.PAGESIZE
            last = int((positions + part["length"]).max())
            view = self._readable(key, last)
            if view is not None and last > first:
                view.madvise(mmap.MADV_WILLNEED, first, last - first)

    def close(self) -> None:
        for fd in self._writing.values():
            os.close(fd)
        for view in self._reading.values():
            view.close()
        self._writing.clear()
        self._reading.clear()

    def _read(self, key: int, positions: Column, rows: Rows) -> list[bytes]:
        starts = positions.tolist()
        ends = (positions + rows["length"]).tolist()
        view = self._readable(key, max(ends))
        if view is None:
            raise StoreDamaged(f"{self.path(key)} is missing or shorter than its records say")
        bodies = [view[start:end] for start, end in zip(starts, ends, strict=True)]
        if list(map(crc32, bodies)) != rows["crc"].tolist():
            raise StoreDamaged(f"{self.path(key)}: a body fails its CRC")
        return bodies

    def _readable(self, key: int, size_bytes: int) -> mmap.mmap | None:
        view = self._reading.get(key)
        if view is not None and len(view) >= size_bytes:
            self._reading.move_to_end(key)
            return view
        if view is not None:
            self._reading.pop(key).close()
        available_bytes = self.size_bytes(key)
        if not available_bytes or available_bytes < size_bytes:
            return None
        with self.path(key).open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._reading[key] = view
        if len(self._reading) > OPEN_FILES:
            self._reading.popitem(last=False)[1].close()
        return view

    def _writable(self, key: int) -> int:
        fd = self._writing.get(key)
        if fd is not None:
            return fd
        fd = os.open(self.path(key), os.O_RDWR | os.O_CREAT, 0o644)
        self._writing[key] = fd
        self._known.add(key)
        self._sizes[key] = os.fstat(fd).st_size
        if len(self._writing) > OPEN_FILES:
            os.close(self._writing.popitem(last=False)[1])
        return fd

    def _forget(self, key: int) -> None:
        self._known.discard(key)
        self._sizes.pop(key, None)
        fd = self._writing.pop(key, None)
        if fd is not None:
            os.close(fd)
        view = self._reading.pop(key, None)
        if view is not None:
            view.close()

    def _list(self) -> None:
        for path in self.folder.glob("*.body"):
            span, _, stretch = path.stem.partition("-")
            self._known.add(int(stretch) * _KEY_SPANS + int(span))


def places_of(rows: Rows) -> tuple[Column, Column]:
    """Return file key and position of each row's body. Raises StoreDamaged."""
    spans, positions = locations(rows)
    if rows.size and spans.max() >= _KEY_SPANS:
        span = f"span {spans.max()}, but the highest span is {_KEY_SPANS - 1}"
        raise StoreDamaged(f"a record of the log names a file of bodies with {span}")
    return file_keys(rows["fires_ms"], spans), positions


def _by_file(rows: Rows) -> Iterator[tuple[int, Column, Rows]]:
    keys, positions = places_of(rows)
    for start, count in stretches(keys):
        part = slice(start, start + count)
        yield int(keys[start]), positions[part], rows[part]


def _end_ms(key: int) -> int:
    stretch, span = divmod(key, _KEY_SPANS)
    return (stretch + 1) * SPANS_MS[span]
