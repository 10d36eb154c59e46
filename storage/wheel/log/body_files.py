"""Bodies in files grouped by due time, dropped whole once their time has passed."""

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.shard.files import Files
from storage.store import Column
from storage.wheel.log.records import Rows, locations, stretches

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SPANS_MS = (MINUTE_MS, HOUR_MS, DAY_MS)
"""Width of a body file by span number: the further away the due, the wider its file."""
REACHES_MS = (HOUR_MS, 7 * DAY_MS)
"""Up to this far beyond the watermark a due still goes to span 0 and 1."""
OPEN_FILES = 16
_KEY_SPANS = len(SPANS_MS)


def spans_of(dues_ms: Column, watermark_ms: int) -> Column:
    """The span number each due is written with."""
    return np.searchsorted(np.array(REACHES_MS), dues_ms - watermark_ms, "right").astype(np.int64)


def file_keys(dues_ms: Column, spans: Column) -> Column:
    """One number per body file: its span and which stretch of time it is for."""
    keys: Column = dues_ms // np.array(SPANS_MS)[spans] * _KEY_SPANS + spans
    return keys


class BodyFiles:
    """Bodies appended to `<span>-<stretch>.body`; a body is found by file, position, length."""

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
        """The file of `key`."""
        stretch, span = divmod(key, _KEY_SPANS)
        return self.folder / f"{span}-{stretch}.body"

    def append(self, key: int, bodies: list[bytes]) -> int:
        """Write bodies side by side at the end of a file; the position of the first."""
        fd = self._writable(key)
        position = self._sizes[key]
        self._unconfirmed.setdefault(key, position)
        data = b"".join(bodies)
        self._files.write(fd, data, position)
        self._sizes[key] = position + len(data)
        return position

    def read(self, rows: Rows) -> list[bytes]:
        """The body of each row. Raises StoreDamaged when one is missing or fails its CRC."""
        found: list[bytes] = []
        for key, positions, part in _by_file(rows):
            found += self._read(key, positions, part)
        return found

    def confirm(self) -> None:
        """What was appended is known to a checkpoint now: it stays."""
        self._unconfirmed.clear()

    def rewind(self) -> None:
        """Cut off what was appended since the last `confirm`. Where that fails, it stays as bytes
        that no record points at."""
        for key, size_bytes in self._unconfirmed.items():
            with suppress(OSError):
                self._files.resize(self.path(key), size_bytes)
                self._sizes[key] = size_bytes
        self._unconfirmed.clear()

    def __bool__(self) -> bool:
        return bool(self._known)

    def drop_before(self, watermark_ms: int) -> None:
        """Delete every file whose time has passed."""
        for key in [key for key in self._known if _end_ms(key) <= watermark_ms]:
            self._forget(key)
            self._files.remove(self.path(key))

    def size_bytes(self, key: int) -> int:
        """Bytes in a file; 0 when there is none."""
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def will_need(self, rows: Rows) -> None:
        """Have the system read ahead the bodies of one run, which lie side by side; if it can."""
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
        """Give the files back."""
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
    """Where the bodies of these rows lie: the key of the file, and the position in it. Raises
    StoreDamaged where a row names a file that cannot be."""
    spans, positions = locations(rows)
    if rows.size and spans.max() >= _KEY_SPANS:
        raise StoreDamaged(f"a record of the log names a file of bodies of span {spans.max()}")
    return file_keys(rows["due_ms"], spans), positions


def _by_file(rows: Rows) -> Iterator[tuple[int, Column, Rows]]:
    """Neighbours whose bodies lie in one file: its key, their positions, and their rows."""
    keys, positions = places_of(rows)
    for start, count in stretches(keys):
        part = slice(start, start + count)
        yield int(keys[start]), positions[part], rows[part]


def _end_ms(key: int) -> int:
    stretch, span = divmod(key, _KEY_SPANS)
    return (stretch + 1) * SPANS_MS[span]
