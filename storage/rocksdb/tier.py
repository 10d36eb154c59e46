"""The tier on disk of the kind `rocksdb`."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np

from storage.counts import DueHistogram, Piece, no_counts, offsets_of
from storage.errors import StoreDamaged
from storage.folder import Checkpoint, boot_id
from storage.inspection import FolderReport, count_findings
from storage.memtable import Columns, Memtable, count_upto
from storage.rocksdb.database import FORMAT, ROCKS, RocksDatabase
from storage.store import (
    LAST_OFFSET,
    PEEK_BYTES,
    Column,
    Due,
    Entry,
    Key,
    Scanned,
    Wants,
    bodies_bytes,
)
from storage.tiered_store import Ledger, OpenedTier, Opening

# About when the entries in a sorted place on disk are due, remembered by pieces.

PIECES_A_MEMTABLE = 16
MOST_PIECES = 4096


class WrittenPieces:
    """Each memtable that was written is remembered as a few pieces; old ones are joined."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self._pieces = list(pieces)

    def note(self, entries: Sequence[Entry], watermark_ms: int) -> None:
        """Note entries written in due order; forget what has ended."""
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

    def histogram(self, edges_ms: Sequence[int] | Column, watermark_ms: int) -> DueHistogram:
        """What is left beyond the watermark."""
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


# The first entries of a RocksDB, kept until they end.

PEEK_ENTRIES = 4096

_due_of = itemgetter(0)
_key_of = itemgetter(0, 1)


class ReadAheadBuffer:
    """Entries beyond the watermark up to where it has read; counts out what ends.

    bodies_bytes: what their bodies take."""

    def __init__(self, database: RocksDatabase, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger
        self.bodies_bytes = 0
        self._entries: list[Entry] = []
        self._read_to: Key = ledger.counted
        self._next_due_ms: int | None = 0
        self._below_floor: list[Entry] = []
        self._pass_over(ledger.ended)

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first `max_entries` entries due by `until_ms`, fewer if they are large."""
        while self._may_read(until_ms) and len(self._entries) < max_entries:
            left_bytes = max_bytes - self.bodies_bytes
            if left_bytes <= 0 and self._entries:
                break
            self._keep(self._read(until_ms, max_entries - len(self._entries), left_bytes))
        found = self._entries[: bisect_right(self._entries, until_ms, key=_due_of)][:max_entries]
        return Due(found, is_all=not self._may_read(until_ms) and len(found) < max_entries)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due on disk at or before `until_ms`."""
        if not self._entries:
            self.peek(until_ms, 1, 1)
        return self._entries[0][0] if self._entries else None

    def forget(self, ended: Key) -> int:
        """Drop entries at or below `ended`; how many there were on disk."""
        before = self._ledger.counts.total
        self.bodies_bytes -= bodies_bytes(_upto(ended, self._entries))
        for entries in (self._entries, self._below_floor):
            passed = _upto(ended, entries)
            self._count_out(passed)
            del entries[: len(passed)]
        if ended > self._read_to:
            self._pass_over(ended)
        return before - self._ledger.counts.total

    def note_written(self, first: Key) -> None:
        """Entries from `first` on were added to the disk: read again from the watermark."""
        if first <= self._read_to:
            self._entries, self._below_floor, self.bodies_bytes = [], [], 0
            self._read_to = self._ledger.ended
        if self._next_due_ms is None or first[0] < self._next_due_ms:
            self._next_due_ms = first[0]

    def _may_read(self, until_ms: int) -> bool:
        return self._next_due_ms is not None and self._next_due_ms <= until_ms

    def _read(self, until_ms: int, most_entries: int, most_bytes: int) -> list[Entry]:
        most_entries = min(most_entries, PEEK_ENTRIES)
        found = self._database.read(self._read_to, until_ms, most_entries, most_bytes)
        self._next_due_ms = found.next_due_ms
        if found.entries:
            self._read_to = found.entries[-1][:2]
        return found.entries

    def _keep(self, entries: list[Entry]) -> None:
        """Keep entries; what lies below the floor has ended, though its due has not come."""
        floor = self._ledger.floor
        if entries and min(entry[1] for entry in entries) < floor:
            self._below_floor += [entry for entry in entries if entry[1] < floor]
            entries = [entry for entry in entries if entry[1] >= floor]
        self._entries += entries
        self.bodies_bytes += bodies_bytes(entries)

    def _pass_over(self, ended: Key) -> None:
        """Count out entries at or below `ended` that were never peeked at."""
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
    """Those at or below `ended` of entries that are in order."""
    return entries[: bisect_right(entries, ended, key=_key_of)]


# A RocksDB opened for reading only.

READ_AT_ONCE = 1024
READ_BYTES = 32 * 1024 * 1024
FAR_MS = 2**62


class RocksReader:
    """RocksDB checks every block that is read."""

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last one that was written out."""
        return self._database.checkpoint

    def check(self, report: FolderReport) -> None:
        """Read every row; compare what pends with what the checkpoint counts."""
        assert self.checkpoint is not None
        seen = no_counts(self.checkpoint.counts.targets.numbers)
        last: Key = (self.checkpoint.watermark_ms, self.checkpoint.cursor)
        for entries in self._batches():
            keys = [last, *(entry[:2] for entry in entries)]
            if any(key >= following for key, following in pairwise(keys)):
                report.findings.append(f"{report.folder}: rows are out of order at {keys[1]}")
            last = keys[-1]
            seen.add(entries, offsets_of(entries))
        report.findings += count_findings(seen, self.checkpoint)
        report.pending = report.records = seen.total
        report.segments = self._database.files

    def entries(self) -> Iterator[Entry]:
        """The entries that pend, in order."""
        for entries in self._batches():
            yield from entries

    def _batches(self) -> Iterator[list[Entry]]:
        at = self.checkpoint
        after: Key = (-1, -1) if at is None else (at.watermark_ms, at.cursor)
        while entries := self._read(after):
            yield entries
            after = entries[-1][:2]

    def _read(self, after: Key) -> list[Entry]:
        return self._database.read(after, FAR_MS, READ_AT_ONCE, READ_BYTES).entries


# RocksDB as a `DiskTier`: the first entries read ahead, the rest in the database.

STEP_ENTRIES = 2048
MOST_ENTRIES = 4096
"""A memtable is written in one go: this many entries take about 15 ms."""
LOOKED_AT = 1024
"""Rows of one `scan`: a matter of two milliseconds."""
MOST_BYTES = 8 * 1024 * 1024


class RocksTier:
    """What RocksDB compacts it compacts by itself; the checkpoint tells it what has ended."""

    def __init__(self, database: RocksDatabase, ledger: Ledger, bound: dict[str, int]) -> None:
        """Raises StoreDamaged."""
        self.database = database
        self._ledger, self._bound = ledger, bound
        self._pieces = WrittenPieces(database.pieces())
        self._buffer = ReadAheadBuffer(database, ledger)
        self._ended_entries = 0

    @property
    def peeked_bytes(self) -> int:
        """What the bodies take that were read ahead."""
        return self._buffer.bodies_bytes

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first entries due."""
        return self._buffer.peek(until_ms, max_entries, max_bytes)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due."""
        return self._buffer.next_due_ms(until_ms)

    def forget(self, ended: Key) -> None:
        """Count out what has ended; the next flush drops it from the database."""
        self._ended_entries += self._buffer.forget(ended)

    def count_dues(self, histogram: DueHistogram) -> None:
        """Only the dues of pieces of what was written are known."""
        on_disk = self._pieces.histogram(histogram.edges_ms, self._ledger.watermark_ms)
        histogram.join(on_disk, self._ledger.counts.total)

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Read some rows past the read-ahead buffer."""
        found = self.database.read(after, until_ms, LOOKED_AT, max_bytes)
        is_all = found.next_due_ms is None or found.next_due_ms > until_ms
        upto = (until_ms, LAST_OFFSET) if is_all else found.entries[-1][:2]
        floor = self._ledger.floor
        wanted = [
            entry
            for entry in found.entries
            if entry[1] >= floor and (wants is None or wants(entry[2]))
        ]
        kept = wanted[:max_entries]
        return Scanned(kept, upto if len(kept) == len(wanted) else kept[-1][:2])

    def load(self, budget_entries: int) -> int:  # noqa: ARG002 - RocksDB caches blocks by itself
        """Nothing to do."""
        return 0

    @property
    def is_loading(self) -> bool:
        """Never."""
        return False

    @property
    def wants_compaction(self) -> bool:
        """Whether so many entries have ended that RocksDB should hear of it."""
        return self._ended_entries >= MOST_ENTRIES

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """Make a memtable into rows, in steps, then write all of them at once."""
        entries: list[Entry] = []
        if memtable is not None:
            columns = yield from memtable.to_columns(STEP_ENTRIES)
            columns = columns.taken(np.lexsort((columns.offsets, columns.dues_ms)))
            columns = columns.part(self._ended_in(columns), len(columns))
            entries = columns.entries(self._ledger.counts.targets.numbers.by_number)
        checkpoint = self._checkpoint(coverable())
        if memtable is not None:
            checkpoint.counts.merge(memtable.counts)
        self.database.write(entries, checkpoint)
        self._ledger.counts = checkpoint.counts.copy()
        self._ledger.covered = checkpoint.covered
        self._pieces.note(entries, self._ledger.watermark_ms)
        self._ended_entries = 0
        if entries:
            self._buffer.note_written(entries[0][:2])

    def persist(self) -> None:
        """Have RocksDB write out its own memtable."""
        self.database.persist()

    def close(self) -> None:
        """Give the database back."""
        self.database.close()

    def _ended_in(self, columns: Columns) -> int:
        """How many of the columns' rows, in order, have ended."""
        return count_upto(columns.dues_ms, columns.offsets, self._ledger.ended)

    def _checkpoint(self, covered: int) -> Checkpoint:
        return Checkpoint(
            options=self._bound,
            covered=covered,
            watermark_ms=self._ledger.watermark_ms,
            cursor=self._ledger.cursor,
            boot_id=boot_id(),
            counts=self._ledger.counts.copy(),
        )


# Opening a folder's RocksDB, for the proxy and for those who only look.

LOOKS = 5


def open_rocksdb(opening: Opening) -> OpenedTier:
    """Open or make the database. Raises StoreDamaged, StoreMismatch, OSError."""
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
    """Read the folder. Raises StoreDamaged, and FileNotFoundError where there is no database."""
    current = folder / ROCKS / "CURRENT"
    if not current.exists():
        raise FileNotFoundError(2, "No such file", str(current))
    database = _opened_for_reading(folder)
    try:
        yield RocksReader(database)
    finally:
        database.close()


def _opened_for_reading(folder: Path) -> RocksDatabase:
    """Opens all files at once; a running proxy may have dropped one between listing and opening."""
    for _ in range(LOOKS - 1):
        with suppress(StoreDamaged):
            return RocksDatabase(folder, is_read_only=True)
    return RocksDatabase(folder, is_read_only=True)
