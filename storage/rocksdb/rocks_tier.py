"""RocksDB as a `DiskTier`: the first entries read ahead, the rest in the database."""

from collections.abc import Callable, Iterator

import numpy as np

from storage.rocksdb.read_ahead_buffer import ReadAheadBuffer
from storage.rocksdb.rocks_database import RocksDatabase
from storage.rocksdb.written_pieces import WrittenPieces
from storage.shard.checkpoint import Checkpoint, boot_id
from storage.shard.ledger import Ledger
from storage.shard.memory.columns import Columns, count_upto
from storage.shard.memory.due_histogram import DueHistogram
from storage.shard.memory.memtable import Memtable
from storage.store import LAST_OFFSET, Due, Entry, Key, Scanned, Wants

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
