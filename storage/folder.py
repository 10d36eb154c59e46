"""The folder of one store: files, lock, checkpoint, and damage notes."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.counts import ChunkCounts, Counts, TargetCounter, TargetNumbers, no_counts
from storage.errors import StorageError, StorageFull, StorageUnreadable, StoreDamaged, StoreLocked
from storage.options import KINDS, StoreKind


class Files:
    """File operations without fsync (storage/FORMAT.md#what-a-power-loss-does).

    Tests intercept them."""

    def write(self, fd: int, data: bytes | memoryview, position: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def resize(self, file: int | Path, size_bytes: int) -> None:
        """Cut or extend a file. The extension reads as zeros."""
        os.truncate(file, size_bytes)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """Reserve space, so that writing through a mapping cannot hit a full disk."""
        os.posix_fallocate(fd, 0, size_bytes)

    def poke(
        self, cells: npt.NDArray[np.void], at: npt.NDArray[np.int64], rows: npt.NDArray[np.void]
    ) -> None:
        """Set `cells[at] = rows`, each item in one copy. A kill may still leave half an item."""
        item = np.dtype((np.void, cells.dtype.itemsize))
        cells.view(item)[at] = rows.view(item)

    def replace(self, path: Path, data: bytes) -> None:
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.write(fd, data, 0)
        finally:
            os.close(fd)
        self.rename(fresh, path)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Delete a file. Ignore failures, because a later opening or flush deletes it."""
        with suppress(OSError):
            path.unlink()


KEPT_ASIDE = 2


def kind_of(folder: Path) -> StoreKind | None:
    """Return the kind of the store, or None. The folder has a file with the kind's name."""
    return next((kind for kind in KINDS if (folder / kind).exists()), None)


class FolderLock:
    """An exclusive lock on a folder. Creates the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = _lock(folder)

    def put_aside(self, files: Files) -> Path:
        """Rename the folder to `<folder>.broken-<n>` and lock a new one.

        Keeps the newest KEPT_ASIDE renamed folders."""
        taken = sorted(_numbers(self.folder))
        aside = _aside(self.folder, taken[-1] + 1 if taken else 1)
        files.rename(self.folder, aside)
        self.folder.mkdir()
        fd = _lock(self.folder)
        self.release()
        self._fd = fd
        for number in taken[: len(taken) + 1 - KEPT_ASIDE]:
            shutil.rmtree(_aside(self.folder, number), ignore_errors=True)
        return aside

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreLocked(folder) from None
    return fd


def _aside(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}.broken-{number}")


def _numbers(folder: Path) -> list[int]:
    tails = [
        path.name.rpartition("-")[2]
        for path in folder.parent.iterdir()
        if path.name.startswith(f"{folder.name}.broken-")
    ]
    return [int(tail) for tail in tails if tail.isdigit()]


CHECKPOINT = "checkpoint"
MAGIC = b"KDPCKP06"
_PREFIX = Struct("<8sIII")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(slots=True)
class Checkpoint:
    """State of a store at one instant (storage/FORMAT.md, "Checkpoint")."""

    options: dict[str, int]
    covered: int = 0
    """Records at lower ingress offsets are in the files or have ended."""
    watermark_ms: int = -1
    cursor: int = -1
    """`counts` has only entries beyond (watermark_ms, cursor)."""
    closed: int = 0
    """No chain has records of lower slot numbers."""
    log_end: int = 0
    """The log ends here. Bytes from this position on are not valid."""
    redo_from: int = 0
    """The wheel may lack runs from this log position on."""
    live: dict[int, int] = field(default_factory=dict)
    """For each segment of the log: the number of its records that are in a chain."""
    checks: int = 0
    """Sum of the field `check` of all slots, once the wheel has all runs."""
    boot_id: str = ""
    counts: Counts = field(default_factory=lambda: no_counts(TargetNumbers()))

    def to_bytes(self) -> bytes:
        targets, chunks = self.counts.targets, self.counts.chunks.copy()
        fields = {name: value for name, value in _fields(self).items() if name != "counts"}
        sizes = self.counts.target_bytes
        by_name = targets.numbers.by_name
        numbered = {
            name: [by_name[name], count, sizes.by_name[name]]
            for name, count in targets.by_name.items()
        }
        fields |= {"targets": numbered, "others": [targets.others, sizes.others]}
        fields |= {"shift": chunks.shift, "base": chunks.base}
        text = json.dumps(fields, separators=(",", ":")).encode()
        numbers = chunks.counts.astype("<i8").tobytes()
        body = text + numbers
        return _PREFIX.pack(MAGIC, crc32(body), len(text), len(numbers)) + body


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises StoreDamaged, FileNotFoundError."""
    return parse_checkpoint(path.read_bytes(), path)


def parse_checkpoint(data: bytes, path: Path) -> Checkpoint:
    """Parse a checkpoint. `path` is used in errors. Raises StoreDamaged."""
    if len(data) < _PREFIX.size:
        raise StoreDamaged(f"{path} has only {len(data)} bytes")
    magic, crc, text_bytes, number_bytes = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    if magic != MAGIC:
        raise StoreDamaged(f"{path} is of another version: it begins with {magic!r}")
    if len(body) != text_bytes + number_bytes or crc32(body) != crc:
        raise StoreDamaged(f"{path} fails its CRC")
    return _from_fields(json.loads(body[:text_bytes]), body[text_bytes:])


def boot_id() -> str:
    """Return an id of the machine's boot, or '' if unknown. A reboot loses the page cache."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in checkpoint.__slots__}


def _from_fields(fields: dict[str, Any], by_chunk: bytes) -> Checkpoint:
    chunks = ChunkCounts(
        fields.pop("shift"), fields.pop("base"), np.frombuffer(by_chunk, "<i8").astype(np.int64)
    )
    targets, (others, others_bytes) = fields.pop("targets"), fields.pop("others")
    numbers = TargetNumbers({at: name for name, (at, _, _) in targets.items()}, is_closed=True)
    counted = {name: count for name, (_, count, _) in targets.items()}
    sizes = {name: size for name, (_, _, size) in targets.items() if size}
    counts = Counts(
        TargetCounter(numbers, counted, others), TargetCounter(numbers, sizes, others_bytes), chunks
    )
    fields["live"] = {int(number): records for number, records in fields["live"].items()}
    return Checkpoint(**fields, counts=counts)


DAMAGED = "damaged"


class _Section:
    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._fail(error)


class DamageGuard:
    """A guard that writes damage to a file. The next opening then puts the folder aside.

    After a failed read the counts may be older than the watermark, so `flush` refuses to write."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.reading, self.writing = _Section(self._read_failed), _Section(self._write_failed)
        self.failed: StorageError | None = None
        self._folder = folder
        self._files = files

    def _read_failed(self, error: BaseException) -> None:
        self._note(error)
        if isinstance(error, OSError):
            self.failed = StorageUnreadable(self._folder, error)
            raise self.failed from error

    def _write_failed(self, error: BaseException) -> None:
        self._note(error)
        if isinstance(error, OSError):
            raise StorageFull(self._folder, error) from error

    def _note(self, error: BaseException) -> None:
        if isinstance(error, StoreDamaged):
            with suppress(OSError):
                self._files.replace(self._folder / DAMAGED, str(error).encode())


def damage_noted(folder: Path) -> str | None:
    """Return the recorded damage, or None."""
    try:
        return (folder / DAMAGED).read_text(errors="replace")
    except FileNotFoundError:
        return None
