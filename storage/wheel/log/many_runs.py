"""Many runs of the log at once, as columns. Read one by one they cost ten times as much."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.options import RECORD_BYTES
from storage.store import Column
from storage.wheel.log.records import CRC_FROM, HEADER, RECORD, RUN_MAGIC, SHORTEST_BYTES, Rows
from storage.wheel.log.segment import Segment
from storage.wheel.log.timer_log import TimerLog

CELLS_AT_ONCE = 8192
"""Half as many runs, where each has one record: a millisecond."""


def headers_at(log: TimerLog, positions: Column) -> Rows:
    """The headers of the runs at these positions: all zeros where no run begins."""
    headers = np.zeros(positions.size, HEADER)
    for at, segment, cells in _by_segment(log, positions):
        headers.put(at, segment.cells.take(cells).view(HEADER))
    room = log.segment_bytes - positions % log.segment_bytes
    begins = headers["magic"] == RUN_MAGIC
    begins &= (headers["count"].astype(np.int64) + 1) * RECORD_BYTES <= room
    begins &= (headers["count"] > 0) & (headers["prev"] < positions)
    headers[~begins] = 0
    return headers


def slots_at(log: TimerLog, positions: Column) -> Column:
    """The slot numbers of the runs at these positions; 0 where none can be."""
    slots = np.zeros(positions.size, np.int64)
    for at, segment, cells in _by_segment(log, positions):
        slots[at] = segment.cells["due_ms"][cells + 1] // log.precision_ms
    return slots


def are_whole(log: TimerLog, positions: Column, headers: Rows) -> npt.NDArray[np.bool_]:
    """Which of the runs with these headers pass their CRC."""
    is_whole = np.zeros(positions.size, np.bool_)
    for at, segment, cells in _by_segment(log, positions):
        starts = cells * RECORD_BYTES
        ends = starts + (headers["count"][at].astype(np.int64) + 1) * RECORD_BYTES
        with memoryview(segment.view) as view:
            found = [
                crc32(view[start + CRC_FROM : end])
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
        is_whole[at] = (headers["crc"][at] == found) & (headers["magic"][at] == RUN_MAGIC)
    return is_whole


def whole_headers_at(log: TimerLog, positions: Column) -> Rows:
    """The headers of the runs at these positions. Raises StoreDamaged unless a whole run lies at
    each of them."""
    headers = headers_at(log, positions)
    is_whole = are_whole(log, positions, headers)
    if not is_whole.all():
        log.run(int(positions[np.argmin(is_whole)]))
        raise StoreDamaged(f"{log.folder} changed while it was read")
    return headers


def rows_of(log: TimerLog, positions: Column, headers: Rows) -> Rows:
    """The rows of these runs, one run after the other."""
    counts = headers["count"].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    rows = np.zeros(int(counts.sum()), RECORD)
    for at, segment, cells in _by_segment(log, positions):
        found = segment.cells.take(_ranges(cells + 1, counts[at]))
        rows.put(_ranges(firsts[at], counts[at]), found)
    return rows


def positions_between(log: TimerLog, start: int, stop: int) -> Iterator[Column]:
    """Where the runs from `start` up to `stop` lie, oldest first, some at a time; dropped segments
    are passed over. The last one may be none, where the one before it is not whole."""
    for number in range(start // log.segment_bytes, -(-stop // log.segment_bytes)):
        base = number * log.segment_bytes
        first, last = max(start - base, 0), min(stop - base, log.segment_bytes)
        if number in log.segments:
            for cells in _run_cells(log.segments[number], first // RECORD_BYTES, last):
                yield base + np.array(cells) * RECORD_BYTES


def _run_cells(segment: Segment, first: int, end_byte: int) -> Iterator[list[int]]:
    """The cells of a segment where a run begins, some at a time: each run says where the next one
    is to begin. What was never written is zeros."""
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
    """Which of the positions lie in a segment, and the cells of it that they name; those where no
    run can be are left out."""
    numbers, offsets = np.divmod(positions, log.segment_bytes)
    cells, odd = np.divmod(offsets, RECORD_BYTES)
    possible = (positions >= 0) & (positions + SHORTEST_BYTES <= log.end) & (odd == 0)
    possible &= offsets + SHORTEST_BYTES <= log.segment_bytes
    for number in np.unique(numbers[possible]).tolist():
        if number in log.segments:
            at = np.flatnonzero(possible & (numbers == number))
            yield at, log.segments[number], cells[at]


def _ranges(starts: Column, counts: Column) -> Column:
    """`counts` numbers from each of `starts` on, one after the other."""
    before = np.cumsum(counts) - counts
    ranges: Column = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
    return ranges
