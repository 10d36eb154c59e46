"""The store kind `rocksdb`: entries in a RocksDB, sorted by (fires_ms, offset)."""

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)
from rocksdict import Options as RocksOptions

from storage.counts import DueHistogram, Piece
from storage.errors import StoreDamaged
from storage.folder import Checkpoint, boot_id, parse_checkpoint
from storage.memtable import Memtable, count_upto
from storage.store import LAST_OFFSET, PEEK_BYTES, Due, Entry, Key, Scanned, Wants, bodies_bytes
from storage.tier import FolderReport, Ledger, OpenedTier, Opening

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
"""Known types of records in RocksDB's manifest: padding, full, first, middle, last."""


class EntriesRead(NamedTuple):
    """Entries in order."""

    entries: list[Entry]
    next_fires_ms: int | None
    """Firing time of the next entry, or None if there is no other."""


class RocksDatabase:
    """A RocksDB without a write-ahead log. `write` puts rows and their checkpoint in one batch."""

    def __init__(self, folder: Path, persist_offsets: int = 2**62, *, is_read_only: bool = False):
        self._path = folder / ROCKS
        for manifest in self._path.glob("MANIFEST-*"):
            _refuse_odd_records(manifest)
        self._persist_offsets = persist_offsets
        access = AccessType.read_only(False) if is_read_only else AccessType.read_write()
        options = _options()
        options.set_max_open_files(-1 if is_read_only else MOST_OPEN_FILES)
        with _explained(self._path):
            self._db = Rdict(str(self._path), options, access_type=access)
        try:
            with _explained(self._path):
                found = self._db.get(CHECKPOINT_KEY)
                self.checkpoint = None if found is None else parse_checkpoint(found, self._path)
        except BaseException:
            self._db.close()
            raise
        self._persisted = 0 if self.checkpoint is None else self.checkpoint.covered
        self._without_log = WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign, assignment]

    @property
    def files(self) -> int:
        return len(self._db.live_files())

    def read(self, after: Key, until_ms: int, most_entries: int, most_bytes: int) -> EntriesRead:
        """Read entries within the limits, but at least one if any is left. Raises StoreDamaged."""
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
        """Return the approximate distribution of firing times, from the keys of each file."""
        last_ms = self._last_fires_ms()
        with _explained(self._path):
            files = self._db.live_files()
        pieces = []
        for file in files:
            start, end = file["start_key"], file["end_key"]
            first_ms = last_ms if start == CHECKPOINT_KEY else _KEY.unpack(start)[0]
            until_ms = last_ms if end == CHECKPOINT_KEY else _KEY.unpack(end)[0]
            rows = max(0, file["num_entries"] - 2 * file["num_deletions"])
            pieces.append(Piece(first_ms, max(first_ms, until_ms), rows))
        return pieces

    def _last_fires_ms(self) -> int:
        keys = self._db.keys(backwards=True, from_key=CHECKPOINT_KEY)
        last = next((key for key in keys if key != CHECKPOINT_KEY), FIRST_KEY)
        return int(_KEY.unpack(cast(bytes, last))[0])

    def write(self, entries: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """Add sorted entries, delete ended ones, replace the checkpoint. An OSError undoes all."""
        batch = WriteBatch(raw_mode=True)
        if checkpoint.watermark_ms >= 0:
            batch.delete_range(FIRST_KEY, _beyond(checkpoint.watermark_ms, checkpoint.cursor))
        put, pack, prefixes = batch.put, _KEY.pack, _Prefixes()
        for fires_ms, offset, target, body in entries:
            put(pack(fires_ms, offset), prefixes[target] + body)
        put(CHECKPOINT_KEY, checkpoint.to_bytes())
        with _explained(self._path):
            self._db.write(batch, self._without_log)
        self.checkpoint = checkpoint
        if checkpoint.covered - self._persisted >= self._persist_offsets:
            with suppress(OSError):  # the next `write` tries to persist again
                self.persist(wait=False)

    def close(self) -> None:
        """Release the files. RocksDB persists written data, and raises OSError if it cannot."""
        with _explained(self._path):
            self._db.close()

    def persist(self, *, wait: bool = True) -> None:
        """Make written data survive the end of the process. Raises OSError."""
        with _explained(self._path):
            self._db.flush(wait)
        self._persisted = self.checkpoint.covered if self.checkpoint else 0

    def _rows_from(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows. The last key in the database is the key of the checkpoint.

        If this key does not come, the database is damaged: rocksdict stops silently at a corrupt
        block."""
        with _explained(self._path):
            rows = cast(Iterator[tuple[bytes, bytes]], self._db.items(from_key=start))
            for key, value in rows:
                if key == CHECKPOINT_KEY:
                    return
                yield key, value
        if self.checkpoint is not None:
            raise StoreDamaged(f"{self._path}: a block cannot be read, or fails its checksum")


def _beyond(fires_ms: int, offset: int) -> bytes:
    return _KEY.pack(fires_ms, offset + 1) if fires_ms >= 0 else FIRST_KEY


class _Prefixes(dict[str, bytes]):
    def __missing__(self, target: str) -> bytes:
        name = target.encode()
        prefix = self[target] = _NAME.pack(len(name)) + name
        return prefix


def _cut(
    found: list[tuple[bytes, bytes]], end: bytes, most_entries: int, most_bytes: int
) -> EntriesRead:
    numbers = np.frombuffer(b"".join(key for key, _ in found), ">i8").reshape(-1, 2)
    sizes = np.cumsum([len(value) for _, value in found], dtype=np.int64)
    count = min(len(found), most_entries, max(1, int(np.searchsorted(sizes, most_bytes, "right"))))
    until_ms = _KEY.unpack(end)[0]
    count = min(count, int(np.searchsorted(numbers[:, 0], until_ms)))
    next_fires_ms = int(numbers[count, 0]) if count < len(found) else None
    targets, bodies = [], []
    names: dict[bytes, str] = {}
    for _, value in found[:count]:
        split = 2 + (value[0] << 8 | value[1])
        name = value[2:split]
        if name not in names:
            names[name] = name.decode()
        targets.append(names[name])
        bodies.append(value[split:])
    times_ms, offsets = numbers[:count, 0].tolist(), numbers[:count, 1].tolist()
    return EntriesRead(list(zip(times_ms, offsets, targets, bodies, strict=True)), next_fires_ms)


@cache
def _shared_memory() -> tuple[Cache, WriteBufferManager]:
    """Return the block cache and memtable limit shared by all stores of the process."""
    return Cache(CACHE_BYTES), WriteBufferManager(8 * MEMTABLE_BYTES, allow_stall=False)


def _options() -> RocksOptions:
    blocks_cache, memtables = _shared_memory()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(blocks_cache)
    blocks.set_cache_index_and_filter_blocks(True)
    options = RocksOptions(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memtables)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_keep_log_file_num(2)
    return options


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn rocksdict's exceptions into OSError or StoreDamaged, by the status in their text."""
    try:
        yield
    except (StoreDamaged, OSError):
        raise
    except Exception as error:
        if str(error).startswith("IO error") and "No such file" not in str(error):
            raise OSError(_number(str(error)), str(error)) from error
        raise StoreDamaged(f"{path}: {error}") from error


def _refuse_odd_records(manifest: Path) -> None:
    """Raise StoreDamaged for an unknown record type. RocksDB 10 would loop forever on it."""
    data = manifest.read_bytes()
    at = 0
    while at + _LOG_RECORD.size <= len(data):
        left = LOG_BLOCK_BYTES - at % LOG_BLOCK_BYTES
        if left < _LOG_RECORD.size:
            at += left
            continue
        _crc, length, kind = _LOG_RECORD.unpack_from(data, at)
        if kind not in MANIFEST_RECORDS:
            raise StoreDamaged(f"{manifest}: the record at byte {at} has an unknown type")
        at += _LOG_RECORD.size + length


def _number(said: str) -> int:
    """Return the error number named by the text of a RocksDB error."""
    known = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EMFILE, errno.EROFS, errno.EACCES)
    return next((number for number in known if os.strerror(number) in said), errno.EIO)


PIECES_A_MEMTABLE = 16
MOST_PIECES = 4096


class WrittenPieces:
    """Firing times of written entries, as pieces. Above MOST_PIECES, they are joined in pairs."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self._pieces = list(pieces)

    def note(self, entries: Sequence[Entry], watermark_ms: int) -> None:
        if entries:
            count = len(entries)
            bounds = [count * at // PIECES_A_MEMTABLE for at in range(PIECES_A_MEMTABLE + 1)]
            self._pieces += [
                Piece(entries[start][0], entries[end - 1][0], end - start)
                for start, end in pairwise(bounds)
                if start < end
            ]
        self._pieces = [piece for piece in self._pieces if piece.last_ms > watermark_ms]
        if len(self._pieces) > MOST_PIECES:
            self._join_neighbours()

    def histogram(self, edges_ms: npt.NDArray[np.int64], watermark_ms: int) -> DueHistogram:
        histogram = DueHistogram(edges_ms)
        histogram.add_evenly(
            [p.beyond(watermark_ms) for p in self._pieces if p.last_ms > watermark_ms]
        )
        return histogram

    def _join_neighbours(self) -> None:
        self._pieces.sort()
        pairs = zip(self._pieces[::2], [*self._pieces[1::2], Piece(0, 0, 0)], strict=False)
        self._pieces = [
            Piece(a.first_ms, max(a.last_ms, b.last_ms), a.entries + b.entries) for a, b in pairs
        ]


PEEK_ENTRIES = 4096
STEP_ENTRIES = 2048
MOST_ENTRIES = 4096
"""Largest number of entries in a memtable, which is written in one step of about 15 ms."""
LOOKED_AT = 1024
"""Rows that one `scan` reads, in about 2 ms."""
MOST_BYTES = 8 * 1024 * 1024

_time_of = itemgetter(0)
_key_of = itemgetter(0, 1)


class RocksTier:
    """The `DiskTier` of RocksDB. `_entries` buffers pending entries up to the key `_read_to`."""

    def __init__(self, database: RocksDatabase, ledger: Ledger, bound: dict[str, int]) -> None:
        self.database = database
        self.peeked_bytes = 0
        self._ledger, self._bound = ledger, bound
        self._pieces = WrittenPieces(database.pieces())
        self._entries: list[Entry] = []
        self._read_to: Key = ledger.counted
        self._next_fires_ms: int | None = 0
        self._below_floor: list[Entry] = []
        """Entries that had ended before the opening. They are counted until their firing time."""
        self._ended_entries = 0
        self._pass_over(ledger.ended)

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        while self._may_read(until_ms) and len(self._entries) < max_entries:
            left_bytes = max_bytes - self.peeked_bytes
            if left_bytes <= 0 and self._entries:
                break
            self._keep(self._read(until_ms, max_entries - len(self._entries), left_bytes))
        found = self._entries[: bisect_right(self._entries, until_ms, key=_time_of)][:max_entries]
        return Due(found, is_all=not self._may_read(until_ms) and len(found) < max_entries)

    def next_fires_ms(self, until_ms: int) -> int | None:
        if not self._entries:
            self.peek(until_ms, 1, 1)
        return self._entries[0][0] if self._entries else None

    def forget(self, ended: Key) -> None:
        before = self._ledger.counts.total
        self.peeked_bytes -= bodies_bytes(_upto(ended, self._entries))
        for entries in (self._entries, self._below_floor):
            passed = _upto(ended, entries)
            self._count_out(passed)
            del entries[: len(passed)]
        if ended > self._read_to:
            self._pass_over(ended)
        self._ended_entries += before - self._ledger.counts.total

    def count_dues(self, histogram: DueHistogram) -> None:
        on_disk = self._pieces.histogram(histogram.edges_ms, self._ledger.watermark_ms)
        histogram.join(on_disk, self._ledger.counts.total)

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        found = self.database.read(after, until_ms, LOOKED_AT, max_bytes)
        is_all = found.next_fires_ms is None or found.next_fires_ms > until_ms
        upto = (until_ms, LAST_OFFSET) if is_all else found.entries[-1][:2]
        floor = self._ledger.floor
        wanted = [e for e in found.entries if e[1] >= floor and (wants is None or wants(e[2]))]
        kept = wanted[:max_entries]
        return Scanned(kept, upto if len(kept) == len(wanted) else kept[-1][:2])

    def load(self, budget_entries: int) -> int:  # noqa: ARG002 - RocksDB caches blocks by itself
        return 0

    @property
    def is_loading(self) -> bool:
        return False

    @property
    def wants_compaction(self) -> bool:
        return self._ended_entries >= MOST_ENTRIES

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        ledger = self._ledger
        entries: list[Entry] = []
        if memtable is not None:
            columns = yield from memtable.to_columns(STEP_ENTRIES)
            columns = columns.taken(np.lexsort((columns.offsets, columns.times_ms)))
            passed = count_upto(columns.times_ms, columns.offsets, ledger.ended)
            names = ledger.counts.targets.numbers.by_number
            entries = columns.part(passed, len(columns)).entries(names)
        checkpoint = self._checkpoint(coverable())
        if memtable is not None:
            checkpoint.counts.merge(memtable.counts)
        self.database.write(entries, checkpoint)
        ledger.counts, ledger.covered = checkpoint.counts.copy(), checkpoint.covered
        self._pieces.note(entries, ledger.watermark_ms)
        self._ended_entries = 0
        if entries:
            self._note_written(entries[0][:2])

    def persist(self) -> None:
        self.database.persist()

    def close(self) -> None:
        self.database.close()

    def _checkpoint(self, covered: int) -> Checkpoint:
        return Checkpoint(
            options=self._bound,
            covered=covered,
            watermark_ms=self._ledger.watermark_ms,
            cursor=self._ledger.cursor,
            boot_id=boot_id(),
            counts=self._ledger.counts.copy(),
        )

    def _note_written(self, first: Key) -> None:
        if first <= self._read_to:
            self._entries, self._below_floor, self.peeked_bytes = [], [], 0
            self._read_to = self._ledger.ended
        if self._next_fires_ms is None or first[0] < self._next_fires_ms:
            self._next_fires_ms = first[0]

    def _may_read(self, until_ms: int) -> bool:
        return self._next_fires_ms is not None and self._next_fires_ms <= until_ms

    def _read(self, until_ms: int, most_entries: int, most_bytes: int) -> list[Entry]:
        most_entries = min(most_entries, PEEK_ENTRIES)
        found = self.database.read(self._read_to, until_ms, most_entries, most_bytes)
        self._next_fires_ms = found.next_fires_ms
        if found.entries:
            self._read_to = found.entries[-1][:2]
        return found.entries

    def _keep(self, entries: list[Entry]) -> None:
        floor = self._ledger.floor
        if entries and min(entry[1] for entry in entries) < floor:
            self._below_floor += [entry for entry in entries if entry[1] < floor]
            entries = [entry for entry in entries if entry[1] >= floor]
        self._entries += entries
        self.peeked_bytes += bodies_bytes(entries)

    def _pass_over(self, ended: Key) -> None:
        while self._may_read(ended[0]) and self._read_to < ended:
            entries = self._read(ended[0], PEEK_ENTRIES, PEEK_BYTES)
            passed = _upto(ended, entries)
            self._count_out(passed)
            self._keep(entries[len(passed) :])
        self._read_to = max(self._read_to, ended)

    def _count_out(self, entries: list[Entry]) -> None:
        if entries:
            self._ledger.counts.remove(entries)


def _upto(ended: Key, entries: list[Entry]) -> list[Entry]:
    return entries[: bisect_right(entries, ended, key=_key_of)]


LOOKS = 5
READ_AT_ONCE = 1024
READ_BYTES = 32 * 1024 * 1024
FAR_MS = 2**62


class RocksReader:
    """A `FolderReader` for RocksDB. RocksDB checks every block that it reads."""

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database
        self.checkpoint = database.checkpoint

    def check(self, report: FolderReport) -> None:
        assert self.checkpoint is not None
        report.records = self.checkpoint.counts.total
        report.segments = self._database.files

    def batches(self) -> Iterator[list[Entry]]:
        at = self.checkpoint
        after: Key = (-1, -1) if at is None else (at.watermark_ms, at.cursor)
        while entries := self._database.read(after, FAR_MS, READ_AT_ONCE, READ_BYTES).entries:
            yield entries
            after = entries[-1][:2]


def open_rocksdb(opening: Opening) -> OpenedTier:
    """Open or create the database. Raises StoreDamaged, StoreMismatch, OSError."""
    options = replace(
        opening.options,
        memtable_entries=min(opening.options.memtable_entries, MOST_ENTRIES),
        memtable_bytes=min(opening.options.memtable_bytes, MOST_BYTES),
    )
    database = RocksDatabase(opening.folder, options.replayed_offsets)
    try:
        found = database.checkpoint
        bound = {**FORMAT, "body_format": options.body_format}
        ledger = opening.ledger(found or Checkpoint(bound), bound)
        return OpenedTier(RocksTier(database, ledger, bound), ledger, options, is_new=found is None)
    except BaseException:
        database.close()
        raise


@contextmanager
def look_into_rocksdb(folder: Path) -> Iterator[RocksReader]:
    """Open the database for reading. Raises StoreDamaged, FileNotFoundError."""
    current = folder / ROCKS / "CURRENT"
    if not current.exists():
        raise FileNotFoundError(2, "No such file", str(current))
    database = _opened_for_reading(folder)
    try:
        yield RocksReader(database)
    finally:
        database.close()


def _opened_for_reading(folder: Path) -> RocksDatabase:
    """Open the database. Retry, because the proxy may delete a file that the opening needs."""
    for _ in range(LOOKS - 1):
        with suppress(StoreDamaged):
            return RocksDatabase(folder, is_read_only=True)
    return RocksDatabase(folder, is_read_only=True)
