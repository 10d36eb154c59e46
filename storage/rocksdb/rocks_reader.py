"""A RocksDB opened for reading only."""

from collections.abc import Iterator
from itertools import pairwise

from storage.rocksdb.rocks_database import RocksDatabase
from storage.shard.checkpoint import Checkpoint
from storage.shard.inspection import FolderReport, count_findings
from storage.shard.memory.counts import no_counts, offsets_of
from storage.store import Entry, Key

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
