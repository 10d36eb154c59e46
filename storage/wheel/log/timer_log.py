"""The timer log: runs in append-only segments, found by a position that grows for ever."""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.options import RECORD_BYTES
from storage.shard.files import Files
from storage.wheel.log.records import CRC_FROM, RECORD, RUN_MAGIC, SHORTEST_BYTES, Head, Run
from storage.wheel.log.segment import Segment

_HEADER = Struct("<IIqqIIq")
"""A header, and the due of the first record behind it."""


class TimerLog:
    """Segments named by number; position = number * segment_bytes + offset in the segment.

    A block never straddles segments: what is left of one stays zero."""

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
        self.segments: dict[int, Segment] = {}
        self._files = files
        self._writable = writable
        self._is_cut = True

    def path(self, number: int) -> Path:
        """The file of segment `number`."""
        return self.folder / f"{number:010d}.log"

    def number(self, position: int) -> int:
        """The segment that holds `position`."""
        return position // self.segment_bytes

    def attach(self, number: int) -> None:
        """Open an existing segment. Raises StoreDamaged when it is missing or has another size;
        that of the log's end may be shorter, as a kill within `cut` leaves it."""
        path = self.path(number)
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing, though records in it pend") from None
        last, used_bytes = divmod(self.end, self.segment_bytes)
        least_bytes = used_bytes if number == last and used_bytes else self.segment_bytes
        if not least_bytes <= size_bytes <= self.segment_bytes:
            raise StoreDamaged(f"{path} has {size_bytes} bytes instead of {self.segment_bytes}")
        self.segments[number] = Segment(
            path, self.segment_bytes, self._files, writable=self._writable
        )

    def reserve(self, size_bytes: int) -> int:
        """Where the next block of `size_bytes` goes; opens a new segment when it must."""
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
        """Write the block space was reserved for."""
        number, offset = divmod(self.end, self.segment_bytes)
        self.segments[number].write(offset, data)
        self.end += len(data)

    def cut(self, end: int) -> None:
        """Forget everything from `end` on. When an OSError is raised, nothing from there on is
        read any more, and the bytes are cut before anything is written."""
        self.end, self._is_cut = end, False
        number, offset = divmod(end, self.segment_bytes)
        for later in [kept for kept in self.segments if kept * self.segment_bytes >= end]:
            self.drop(later)
        if offset and number in self.segments:
            self.segments[number].cut(offset)
        self._is_cut = True

    def drop(self, number: int) -> None:
        """Delete a segment; rows already read from it stay readable."""
        self.segments.pop(number).close()
        self._files.remove(self.path(number))

    def close(self) -> None:
        """Give the files back."""
        for segment in self.segments.values():
            segment.close()
        self.segments.clear()

    def run(self, position: int, *, checked: bool = True) -> Run:
        """The run at `position`. Raises StoreDamaged unless there is one, whole and in bounds."""
        number, offset = divmod(position, self.segment_bytes)
        segment = self.segments.get(number)
        if segment is None or position < 0 or position + SHORTEST_BYTES > self.end:
            raise StoreDamaged(f"{self.folder}: no run can be at position {position}")
        if offset + SHORTEST_BYTES > self.segment_bytes or offset % RECORD_BYTES:
            raise StoreDamaged(f"{segment.path}: no run can be at byte {offset}")
        magic, crc, prev, time, chain, count, due_ms = _HEADER.unpack_from(segment.view, offset)
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
            position, due_ms // self.precision_ms, prev, count, Head(time, position, chain), rows
        )

    def chain(self, head: Head, *, checked: bool = True) -> Iterator[Run]:
        """The runs of a chain, newest first. Raises StoreDamaged when it does not add up."""
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
