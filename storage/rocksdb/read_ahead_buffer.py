"""The first entries of a RocksDB, kept until they end."""

from bisect import bisect_right
from operator import itemgetter

from storage.rocksdb.rocks_database import RocksDatabase
from storage.shard.ledger import Ledger
from storage.store import PEEK_BYTES, Due, Entry, Key, bodies_bytes

MOST_ENTRIES = 4096

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
        most_entries = min(most_entries, MOST_ENTRIES)
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
            entries = self._read(ended[0], MOST_ENTRIES, PEEK_BYTES)
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
