"""One FIFO of `store: levels`: rows in (due, offset) order in a stream of bytes, cut into files."""

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.shard.files import Files
from storage.sorted.backing import Key
from storage.store import Entry

FILE_BYTES = 4 * 1024 * 1024
READ_BYTES = 32 * 1024

_FRAME = Struct("<qqIHI")
_SAID = Struct("<qqIH")


class Row(NamedTuple):
    """A row as it stands in the stream; `end` is the position behind it."""

    due_ms: int
    offset: int
    target: bytes
    body: bytes
    end: int


class Stream:
    """Bytes at ever growing positions, in files of FILE_BYTES that are dropped from the front."""

    def __init__(self, folder: Path, number: int, files: Files) -> None:
        self._folder = folder
        self._number = number
        self._files = files

    def path(self, position: int) -> Path:
        """The file that holds the byte at `position`."""
        return self._folder / f"{self._number}-{position // FILE_BYTES}.fifo"

    def write(self, position: int, data: bytes) -> None:
        """Write at `position`, over whatever an undone write has left there."""
        view = memoryview(data)
        while view:
            within = position % FILE_BYTES
            part = view[: FILE_BYTES - within]
            fd = os.open(self.path(position), os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                self._files.write(fd, part, within)
            finally:
                os.close(fd)
            view, position = view[len(part) :], position + len(part)

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from `position` on. Raises StoreDamaged where there are fewer."""
        parts: list[bytes] = []
        while size_bytes:
            within = position % FILE_BYTES
            wanted = min(size_bytes, FILE_BYTES - within)
            parts.append(self._read_file(position, within, wanted))
            size_bytes, position = size_bytes - wanted, position + wanted
        return b"".join(parts)

    def drop(self, start: int, end: int) -> None:
        """Delete the files that lie wholly in [start, end), given where files begin."""
        for position in range(start // FILE_BYTES * FILE_BYTES, end, FILE_BYTES):
            self._files.remove(self.path(position))

    def _read_file(self, position: int, within: int, wanted: int) -> bytes:
        path = self.path(position)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise StoreDamaged(f"{path} is missing") from None
        try:
            found = os.pread(fd, wanted, within)
        finally:
            os.close(fd)
        if len(found) < wanted:
            raise StoreDamaged(f"{path} ends at {within + len(found)}, before a row does")
        return found


class Fifo:
    """Rows between `head` and `end` of a stream; read in order, from any key on."""

    def __init__(self, stream: Stream, number: int, head: int, end: int, tail: Key) -> None:
        self.number = number
        self.stream = stream
        self.head = head
        self.end = end
        self.tail = tail
        self._keys: list[Key] = []
        self._ends: list[int] = []
        self._ahead: deque[Row] = deque()
        self._next = head
        self._after: Key = (-1, -1)

    def twin(self) -> "Fifo":
        """The same rows, read independently."""
        return Fifo(self.stream, self.number, self.head, self.end, self.tail)

    def facts(self) -> list[int]:
        """number, head, end, tail's due and offset: what the checkpoint keeps."""
        return [self.number, self.head, self.end, *self.tail]

    def seek(self, after: Key) -> None:
        """Let `first` be the first row beyond `after`."""
        known = bisect_right(self._keys, after)
        del self._keys[known:], self._ends[known:]
        self._next = self._ends[-1] if self._ends else self.head
        self._ahead.clear()
        self._after = after

    def first(self) -> Row | None:
        """The next row, None behind the last. Raises StoreDamaged."""
        while True:
            if not self._ahead:
                self._fill()
            if not self._ahead:
                return None
            row = self._ahead[0]
            if row[:2] > self._after:
                return row
            self.take()

    def take(self) -> Row:
        """Go beyond the row that `first` shows."""
        row = self._ahead.popleft()
        self._keys.append(row[:2])
        self._ends.append(row.end)
        return row

    def head_beyond(self, ended: Key) -> int:
        """Where the rows beyond `ended` begin, as far as they were read."""
        if self.tail <= ended:
            return self.end
        known = bisect_right(self._keys, ended)
        return self._ends[known - 1] if known else self.head

    def move_head(self, head: int) -> None:
        """Forget what lies before `head`, and delete the files that hold nothing else."""
        known = bisect_right(self._ends, head)
        del self._keys[:known], self._ends[:known]
        done = self.end if head == self.end else head // FILE_BYTES * FILE_BYTES
        self.stream.drop(self.head, done)
        if head == self.end:
            self._ahead.clear()
        self.head, self._next = head, max(self._next, head)

    def _fill(self) -> None:
        """Read and parse about READ_BYTES: at least one row where there is one."""
        left = self.end - self._next
        if not left:
            return
        data = self.stream.read(self._next, min(left, READ_BYTES))
        if len(data) < _FRAME.size:
            raise self._damage("ends within a row")
        need = row_bytes(data, 0)
        if need > len(data):
            if need > left:
                raise self._damage("has a row of impossible length")
            data = self.stream.read(self._next, need)
        place = 0
        while place + _FRAME.size <= len(data) and place + row_bytes(data, place) <= len(data):
            row = self._parse(data, place)
            place = row.end - self._next
            self._ahead.append(row)
        self._next = self._ahead[-1].end

    def _parse(self, data: bytes, place: int) -> Row:
        due_ms, offset, body_bytes, name_bytes, crc = _FRAME.unpack_from(data, place)
        name = place + _FRAME.size
        body = name + name_bytes
        end = body + body_bytes
        if crc32(data[name:end], crc32(data[place : place + _SAID.size])) != crc:
            raise self._damage("has a row that fails its CRC")
        return Row(due_ms, offset, data[name:body], data[body:end], self._next + end)

    def _damage(self, what: str) -> StoreDamaged:
        return StoreDamaged(f"{self.stream.path(self._next)} {what}, near {self._next}")


def row_bytes(data: bytes, place: int) -> int:
    """The length of the row that begins at `place`."""
    _, _, body_bytes, name_bytes, _ = _FRAME.unpack_from(data, place)
    return _FRAME.size + int(name_bytes) + int(body_bytes)


def framed(entries: Sequence[Entry]) -> bytes:
    """Entries as they stand in a stream."""
    return b"".join(
        frame(due_ms, offset, target.encode(), body) for due_ms, offset, target, body in entries
    )


def frame(due_ms: int, offset: int, name: bytes, body: bytes) -> bytes:
    """One row as it stands in a stream."""
    said = _SAID.pack(due_ms, offset, len(body), len(name))
    rest = name + body
    return said + crc32(rest, crc32(said)).to_bytes(4, "little") + rest
