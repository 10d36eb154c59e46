"""The database of the kind `rocksdb`."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple, NoReturn, cast

import numpy as np
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from storage.counts import Piece
from storage.errors import StoreDamaged
from storage.folder import Checkpoint, parse_checkpoint
from storage.store import Entry, Key

ROCKS = "rocksdb"
FORMAT = {"rocksdb": 1}
CHECKPOINT_KEY = b"\xffcheckpoint"
FIRST_KEY = bytes(16)
MEMTABLE_BYTES = 8 * 1024 * 1024
CACHE_BYTES = 32 * 1024 * 1024
MOST_OPEN_FILES = 256
LAST_MS = 2**63 - 2

_KEY = Struct(">QQ")
_NAME = Struct(">H")
_LOG_RECORD = Struct("<IHB")
LOG_BLOCK_BYTES = 32_768
MANIFEST_RECORDS = range(5)
"""Padding, and records in one piece or its first, middle or last."""


class EntriesRead(NamedTuple):
    """Entries in order, and the due of the first one beyond them (None: there is none)."""

    entries: list[Entry]
    next_due_ms: int | None


class RocksDatabase:
    """A database below `folder`. What a batch holds becomes durable with the memtable it lies in,
    wholly and in order, so that no write-ahead log is needed to keep rows and checkpoint in step.
    """

    def __init__(self, folder: Path, persist_offsets: int = 2**62, *, is_read_only: bool = False):
        self._path = folder / ROCKS
        for manifest in self._path.glob("MANIFEST-*"):
            _refuse_odd_records(manifest)
        self._persist_offsets = persist_offsets
        access = AccessType.read_only(False) if is_read_only else AccessType.read_write()
        options = _options()
        options.set_max_open_files(-1 if is_read_only else MOST_OPEN_FILES)
        try:
            self._db = Rdict(str(self._path), options, access_type=access)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            _explain(self._path, error)
        try:
            found = self._db.get(CHECKPOINT_KEY)
            self.checkpoint = parse_checkpoint(found, self._path) if found is not None else None
        except Exception as error:  # noqa: BLE001 - see above
            self._db.close()
            _explain(self._path, error)
        self._persisted = 0 if self.checkpoint is None else self.checkpoint.covered
        self._without_log = WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign, assignment]

    @property
    def files(self) -> int:
        """How many table files there are."""
        return len(self._db.live_files())

    def read(self, after: Key, until_ms: int, most_entries: int, most_bytes: int) -> EntriesRead:
        """Entries beyond `after` and due by `until_ms`: at least one where there is one, and
        about as many as the limits allow. Raises StoreDamaged."""
        start = _beyond(*after)
        end = _KEY.pack(min(until_ms, LAST_MS) + 1, 0)
        found: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        for key, value in self._rows_from(start):
            found.append((key, value))
            size_bytes += len(value)
            is_enough = len(found) > most_entries or size_bytes > most_bytes
            if key >= end or (is_enough and len(found) > 1):
                break
        return _cut(found, end, most_entries, most_bytes)

    def pieces(self) -> list[Piece]:
        """About when the entries are due, by the first and last key of each file. The last may be
        the checkpoint's; then the file is taken to reach to the last entry of all."""
        last_ms = self._last_due_ms()
        try:
            files = self._db.live_files()
        except Exception as error:  # noqa: BLE001 - see above
            _explain(self._path, error)
        pieces = []
        for file in files:
            start, end = file["start_key"], file["end_key"]
            first_ms = last_ms if start == CHECKPOINT_KEY else _KEY.unpack(start)[0]
            until_ms = last_ms if end == CHECKPOINT_KEY else _KEY.unpack(end)[0]
            rows = max(0, file["num_entries"] - 2 * file["num_deletions"])
            pieces.append(Piece(first_ms, max(first_ms, until_ms), rows))
        return pieces

    def _last_due_ms(self) -> int:
        keys = self._db.keys(backwards=True, from_key=CHECKPOINT_KEY)
        last = next((key for key in keys if key != CHECKPOINT_KEY), FIRST_KEY)
        return int(_KEY.unpack(cast(bytes, last))[0])

    def write(self, entries: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """Add entries given in (due, offset) order, drop those at or below the checkpoint's
        watermark, replace the checkpoint: all of it or, when an OSError is raised, none."""
        batch = WriteBatch(raw_mode=True)
        if checkpoint.watermark_ms >= 0:
            batch.delete_range(FIRST_KEY, _beyond(checkpoint.watermark_ms, checkpoint.cursor))
        put, pack, prefixes = batch.put, _KEY.pack, _Prefixes()
        for due_ms, offset, target, body in entries:
            put(pack(due_ms, offset), prefixes[target] + body)
        put(CHECKPOINT_KEY, checkpoint.to_bytes())
        try:
            self._db.write(batch, self._without_log)
        except Exception as error:  # noqa: BLE001 - see above
            _explain(self._path, error)
        self.checkpoint = checkpoint
        if checkpoint.covered - self._persisted >= self._persist_offsets:
            with suppress(OSError):  # the batch counts; the next one tries again
                self._persist(wait=False)

    def persist(self) -> None:
        """Let what was written survive the end of the process. Raises OSError."""
        self._persist(wait=True)

    def close(self) -> None:
        """Give the files back. RocksDB persists what was written before; raises OSError where it
        cannot."""
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001 - see above
            _explain(self._path, error)

    def _persist(self, *, wait: bool) -> None:
        try:
            self._db.flush(wait)
        except Exception as error:  # noqa: BLE001 - see above
            _explain(self._path, error)
        self._persisted = self.checkpoint.covered if self.checkpoint else 0

    def _rows_from(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows up to the checkpoint, which has the last key: rocksdict's iterators end silently
        at a block that fails its checksum."""
        try:
            rows = cast(Iterator[tuple[bytes, bytes]], self._db.items(from_key=start))
            for key, value in rows:
                if key == CHECKPOINT_KEY:
                    return
                yield key, value
        except Exception as error:  # noqa: BLE001 - see above
            _explain(self._path, error)
        if self.checkpoint is not None:
            raise StoreDamaged(f"{self._path}: a block cannot be read, or fails its checksum")


def _beyond(due_ms: int, offset: int) -> bytes:
    """The first key beyond (due_ms, offset)."""
    return _KEY.pack(due_ms, offset + 1) if due_ms >= 0 else FIRST_KEY


class _Prefixes(dict[str, bytes]):
    """target -> its length and bytes, as they stand before a body."""

    def __missing__(self, target: str) -> bytes:
        name = target.encode()
        prefix = self[target] = _NAME.pack(len(name)) + name
        return prefix


def _cut(
    found: list[tuple[bytes, bytes]], end: bytes, most_entries: int, most_bytes: int
) -> EntriesRead:
    """As many of the rows found as are wanted, as entries."""
    numbers = np.frombuffer(b"".join(key for key, _ in found), ">i8").reshape(-1, 2)
    sizes = np.cumsum([len(value) for _, value in found], dtype=np.int64)
    count = min(len(found), most_entries, max(1, int(np.searchsorted(sizes, most_bytes, "right"))))
    until_ms = _KEY.unpack(end)[0]
    count = min(count, int(np.searchsorted(numbers[:, 0], until_ms)))
    next_due_ms = int(numbers[count, 0]) if count < len(found) else None
    targets, bodies = [], []
    names: dict[bytes, str] = {}
    for _, value in found[:count]:
        split = 2 + (value[0] << 8 | value[1])
        name = value[2:split]
        if name not in names:
            names[name] = name.decode()
        targets.append(names[name])
        bodies.append(value[split:])
    dues_ms, offsets = numbers[:count, 0].tolist(), numbers[:count, 1].tolist()
    return EntriesRead(list(zip(dues_ms, offsets, targets, bodies, strict=True)), next_due_ms)


@cache
def _shared_memory() -> tuple[Cache, WriteBufferManager]:
    """One block cache and one bound on memtables for all shards of a process."""
    return Cache(CACHE_BYTES), WriteBufferManager(8 * MEMTABLE_BYTES, allow_stall=False)


def _options() -> Options:
    blocks_cache, memtables = _shared_memory()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(blocks_cache)
    blocks.set_cache_index_and_filter_blocks(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memtables)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_keep_log_file_num(2)
    return options


def _explain(path: Path, error: Exception) -> NoReturn:
    """RocksDB's statuses come as plain exceptions that begin with their names."""
    if isinstance(error, StoreDamaged | OSError):
        raise error
    if str(error).startswith("IO error") and "No such file" not in str(error):
        raise OSError(_number(str(error)), str(error)) from error
    raise StoreDamaged(f"{path}: {error}") from error


def _refuse_odd_records(manifest: Path) -> None:
    """Raise StoreDamaged for a record type that manifests do not have.

    RocksDB 10 reads its log for ever when it meets a type of recycled logs there: a flipped bit
    is enough. What is otherwise wrong it finds itself, by checksum."""
    data = manifest.read_bytes()
    at = 0
    while at + _LOG_RECORD.size <= len(data):
        left = LOG_BLOCK_BYTES - at % LOG_BLOCK_BYTES
        if left < _LOG_RECORD.size:
            at += left
            continue
        _crc, length, kind = _LOG_RECORD.unpack_from(data, at)
        if kind not in MANIFEST_RECORDS:
            raise StoreDamaged(f"{manifest}: the record at byte {at} is of no known type")
        at += _LOG_RECORD.size + length


def _number(said: str) -> int:
    """Return the error number whose text RocksDB repeats. It keeps none itself."""
    known = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EMFILE, errno.EROFS, errno.EACCES)
    return next((number for number in known if os.strerror(number) in said), errno.EIO)
