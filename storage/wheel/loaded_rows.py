"""Index rows of the slots that are due or nearly so; bodies are read only when asked for."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np

from storage.store import Due, Entry, Key
from storage.wheel.log.records import RECORD, Rows, in_order, joined, rows_upto

MERGE_ROWS = 32_768
LEAST_ROWS = 16

_key_of = itemgetter(0, 1)


def key_at(rows: Rows, index: int) -> Key:
    """(due_ms, offset) of one row."""
    return int(rows["due_ms"][index]), int(rows["offset"][index])


class SortedRows:
    """Sorted rows not yet peeked at, as pieces that may be views of the mapped log."""

    def __init__(self, rows: Rows) -> None:
        self._pieces = deque([rows])
        self.head = key_at(rows, 0)
        self.last = key_at(rows, -1)

    def extend(self, rows: Rows) -> None:
        """Append rows that all lie beyond `last`."""
        self._pieces.append(rows)
        self.last = key_at(rows, -1)

    @property
    def piece(self) -> Rows:
        """The rows at hand: at least one, not always all."""
        return self._pieces[0]

    def take(self, count: int) -> Rows:
        """Remove and give the first `count` rows of the piece at hand."""
        piece = self._pieces[0]
        taken: Rows = piece[:count]
        if count < len(piece):
            self._pieces[0] = piece[count:]
        else:
            self._pieces.popleft()
        if self._pieces:
            self.head = key_at(self._pieces[0], 0)
        return taken

    def __bool__(self) -> bool:
        return bool(self._pieces)


class LoadedRows:
    """Merges sorted rows in (due, offset) order and keeps what was peeked at as entries.

    peeked_bytes: what their bodies take."""

    def __init__(self, decode: Callable[[Rows], list[Entry]]) -> None:
        self._decode = decode
        self._batches: list[SortedRows] = []
        self._entries: list[Entry] = []
        self._rows: Rows = np.zeros(0, RECORD)
        self.peeked_bytes = 0
        self._left = 0

    def __len__(self) -> int:
        return len(self._entries) + self._left

    def add(self, runs: Sequence[Rows]) -> None:
        """Take sorted, non-empty runs, oldest first."""
        total = sum(map(len, runs))
        self._left += total
        if total <= MERGE_ROWS and len(runs) > 1:
            runs = [in_order(joined(runs))]
        fresh: list[SortedRows] = []
        for rows in runs:
            if fresh and fresh[-1].last < key_at(rows, 0):
                fresh[-1].extend(rows)
            else:
                fresh.append(SortedRows(rows))
        self._batches += fresh
        if self._entries and any(batch.head < key_at(self._rows, -1) for batch in fresh):
            self._undo_peeks()

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first `max_entries` entries due at or before `until_ms`. Bodies are read as long as
        all that are kept take at most `max_bytes`; one that is larger comes alone."""
        is_cut = False
        while len(self._entries) < max_entries and not is_cut:
            rows = self._take(until_ms, max_entries - len(self._entries))
            if rows is None:
                break
            rows, is_cut = self._fitting(rows, max_bytes)
            self._entries += self._decode(rows)
            self._rows = joined((self._rows, rows))
        found = self._entries[:max_entries]
        if found and found[-1][0] > until_ms:
            del found[bisect_right(found, until_ms, key=itemgetter(0)) :]
        return Due(found, is_all=not is_cut and len(found) < max_entries)

    def next_due_ms(self) -> int | None:
        """The earliest due."""
        if self._entries:
            return self._entries[0][0]
        return min((batch.head[0] for batch in self._batches), default=None)

    def forget(self, watermark_ms: int, cursor: int) -> tuple[list[Entry], list[Rows]]:
        """Drop what is at or below (watermark_ms, cursor): entries peeked before, other rows."""
        key = (watermark_ms, cursor)
        count = bisect_right(self._entries, key, key=_key_of)
        ended = self._entries[:count]
        if count:
            del self._entries[:count]
            self.peeked_bytes -= int(self._rows["length"][:count].sum())
            self._rows = self._rows[count:]
        skipped: list[Rows] = []
        if not self._entries:
            skipped = self._skip(key)
        return ended, skipped

    def _skip(self, key: Key) -> list[Rows]:
        skipped: list[Rows] = []
        for batch in self._batches:
            while batch and batch.head <= key:
                skipped.append(batch.take(rows_upto(batch.piece, *key)))
        self._drop_empty(sum(map(len, skipped)))
        return skipped

    def _take(self, until_ms: int, wanted: int) -> Rows | None:
        batches = sorted(
            (batch for batch in self._batches if batch.head[0] <= until_ms),
            key=lambda batch: batch.head,
        )
        if not batches:
            return None
        first = batches[0].piece
        pivot = min(key_at(first, min(wanted, len(first)) - 1), (until_ms, 2**63 - 1))
        rivals = [batch for batch in batches if batch.head <= pivot]
        if len(rivals) > 1:
            pivot = _frontier(rivals, pivot, max(LEAST_ROWS, 2 * wanted // len(rivals)))
        parts = [
            batch.take(rows_upto(batch.piece, *pivot)) for batch in rivals if batch.head <= pivot
        ]
        self._drop_empty(sum(map(len, parts)))
        return parts[0] if len(parts) == 1 else in_order(joined(parts))

    def _fitting(self, rows: Rows, max_bytes: int) -> tuple[Rows, bool]:
        """As many of the rows as may be decoded now; the others wait again."""
        sizes = np.cumsum(rows["length"], dtype=np.int64)
        fit = int(np.searchsorted(sizes, max_bytes - self.peeked_bytes, "right"))
        fit = max(fit, 0 if self._entries else 1)
        if fit < len(rows):
            self._left += len(rows) - fit
            self._batches.append(SortedRows(rows[fit:]))
        self.peeked_bytes += int(sizes[fit - 1]) if fit else 0
        return rows[:fit], fit < len(rows)

    def _drop_empty(self, taken: int) -> None:
        if taken:
            self._left -= taken
            self._batches = [batch for batch in self._batches if batch]

    def _undo_peeks(self) -> None:
        self._left += len(self._entries)
        self._batches.append(SortedRows(self._rows))
        self._entries = []
        self.peeked_bytes = 0
        self._rows = self._rows[:0]


def _frontier(rivals: list[SortedRows], pivot: Key, share: int) -> Key:
    """How far the rivals can be merged when each gives at most `share` rows."""
    for batch in rivals:
        piece = batch.piece
        pivot = min(pivot, key_at(piece, min(share, len(piece)) - 1))
    return pivot
