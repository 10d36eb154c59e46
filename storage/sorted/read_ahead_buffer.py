"""The first rows on disk: what is peeked at is kept until it ends."""

from bisect import bisect_right
from operator import itemgetter

from storage.shard.ledger import Ledger
from storage.sorted.backing import Backing, Key, Rows
from storage.store import Due, Entry

PEEK_BYTES = 32 * 1024 * 1024
MOST_ROWS = 4096

_due_of = itemgetter(0)
_key_of = itemgetter(0, 1)


class Front:
    """Entries beyond the watermark up to where it has read; counts out what ends."""

    def __init__(self, backing: Backing, ledger: Ledger) -> None:
        self._backing = backing
        self._ledger = ledger
        self._entries: list[Entry] = []
        self._sizes: list[int] = []
        self._read_to: Key = ledger.counted
        self._next_due_ms: int | None = 0
        self._gone: list[Entry] = []
        self._pass_over(ledger.ended)

    def peek(self, until_ms: int, limit: int) -> Due:
        """The first `limit` entries due by `until_ms`, fewer where their bodies take too much."""
        while self._may_read(until_ms) and len(self._entries) < limit:
            room_bytes = PEEK_BYTES - sum(self._sizes)
            if room_bytes <= 0:
                break
            self._keep(self._read(until_ms, limit - len(self._entries), room_bytes))
        found = self._entries[: bisect_right(self._entries, until_ms, key=_due_of)][:limit]
        return Due(found, is_all=not self._may_read(until_ms) and len(found) < limit)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due on disk at or before `until_ms`."""
        if not self._entries:
            self.peek(until_ms, 1)
        return self._entries[0][0] if self._entries else None

    def forget(self, ended: Key) -> int:
        """Drop entries at or below `ended`; how many there were on disk."""
        before = self._ledger.counts.total
        passed = bisect_right(self._entries, ended, key=_key_of)
        self._count_out(self._entries[:passed])
        del self._entries[:passed], self._sizes[:passed]
        passed = bisect_right(self._gone, ended, key=_key_of)
        self._count_out(self._gone[:passed])
        del self._gone[:passed]
        if ended > self._read_to:
            self._pass_over(ended)
        return before - self._ledger.counts.total

    def note_written(self, first: Key) -> None:
        """Rows from `first` on were added to the disk: read again from the watermark."""
        if first <= self._read_to:
            self._entries, self._sizes, self._gone = [], [], []
            self._read_to = self._ledger.ended
        if self._next_due_ms is None or first[0] < self._next_due_ms:
            self._next_due_ms = first[0]

    def _may_read(self, until_ms: int) -> bool:
        return self._next_due_ms is not None and self._next_due_ms <= until_ms

    def _read(self, until_ms: int, most_rows: int, most_bytes: int) -> Rows:
        rows = self._backing.read(self._read_to, until_ms, min(most_rows, MOST_ROWS), most_bytes)
        self._next_due_ms = rows.next_due_ms
        if rows.dues_ms:
            self._read_to = rows.dues_ms[-1], rows.offsets[-1]
        return rows

    def _keep(self, rows: Rows) -> None:
        """Keep rows; what lies below the floor has ended, though its due has not come."""
        floor = self._ledger.floor
        if rows.offsets and min(rows.offsets) < floor:
            self._gone += rows.where([offset < floor for offset in rows.offsets]).entries()
            rows = rows.where([offset >= floor for offset in rows.offsets])
        self._entries += rows.entries()
        self._sizes += map(len, rows.bodies)

    def _pass_over(self, ended: Key) -> None:
        """Count out rows at or below `ended` that were never peeked at."""
        while self._may_read(ended[0]) and self._read_to < ended:
            rows = self._read(ended[0], MOST_ROWS, PEEK_BYTES)
            is_beyond = [key > ended for key in zip(rows.dues_ms, rows.offsets, strict=True)]
            self._count_out(rows.where([not beyond for beyond in is_beyond]).entries())
            self._keep(rows.where(is_beyond))
        self._read_to = max(self._read_to, ended)

    def _count_out(self, entries: list[Entry]) -> None:
        if entries:
            self._ledger.counts.remove(entries)
