"""Entries not yet on disk: near ones as tuples, ready to be delivered, the others as columns."""

from collections.abc import Generator
from itertools import compress

import numpy as np

from storage.shard.memory.columns import Columns, columns_joined, columns_of, columns_scanned
from storage.shard.memory.counts import no_counts, offsets_of
from storage.shard.memory.due_histogram import DueHistogram
from storage.shard.memory.due_index import DueIndex
from storage.shard.memory.target_numbers import TargetNumbers
from storage.store import LAST_OFFSET, Column, Entry, Key, Scanned, Wants, dues_of, first_scanned

NONE_MS = 2**63 - 1
ALL_BYTES = 2**63
NEAR_MS = 1_000
"""Entries due less than once to twice this time after being looked for are kept as tuples."""
ENTRY_BYTES = 300
"""About what an entry takes in memory beside its body: tuple, numbers, its place in the index."""


class Memtable:
    """Entries due at or beyond a horizon are made into columns as they arrive: they are hot in the
    caches then, take half the memory, and are ready to be written.

    first_offset, last_offset: of what was put."""

    def __init__(self, numbers: TargetNumbers, scanned_ms: int, phase_ms: int = 0) -> None:
        """`numbers`: the shard's. `phase_ms`: shards whose phases differ do not move their
        horizons all at once."""
        self.first_offset: int | None = None
        self.last_offset = -1
        self.counts = no_counts(numbers)
        self._near = DueIndex(scanned_ms)
        self._numbers = numbers
        self._phase_ms = phase_ms
        self._horizon_ms = self._horizon_beyond(scanned_ms)
        self._fresh: list[Columns] = []
        self._fresh_from_ms = NONE_MS
        self._sorted: list[Columns] = []

    def __len__(self) -> int:
        return self.counts.total

    @property
    def scanned_ms(self) -> int:
        """The latest time up to which entries were looked for."""
        return self._near.scanned_ms

    @property
    def weight_bytes(self) -> int:
        """About the memory that is taken."""
        return ENTRY_BYTES * len(self) + self.counts.total_bytes

    def put(self, entries: list[Entry], dues_ms: Column) -> None:
        """Take `entries`, in ingress offset order, with their dues."""
        offsets = offsets_of(entries)
        if self.first_offset is None:
            self.first_offset = entries[0][1]
        self.last_offset = entries[-1][1]
        self.counts.add(entries, offsets)
        is_far = dues_ms >= self._horizon_ms
        if is_far.all():
            self._keep_far(entries, dues_ms, offsets)
        elif is_far.any():
            self._near.add(list(compress(entries, (~is_far).tolist())))
            far = list(compress(entries, is_far.tolist()))
            self._keep_far(far, dues_ms[is_far], offsets[is_far])
        else:
            self._near.add(entries)

    def peek(self, until_ms: int, max_entries: int) -> list[Entry]:
        """The first `max_entries` entries due at or before `until_ms`."""
        if until_ms >= self._horizon_ms:
            self._move_horizon(until_ms)
        return self._near.peek(until_ms, max_entries)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due at or before `until_ms`."""
        if until_ms >= self._horizon_ms:
            self._move_horizon(until_ms)
        return self._near.next_due_ms(until_ms)

    def forget(self, ended: Key) -> None:
        """Drop every entry at or below `ended`."""
        if ended[0] >= self._horizon_ms:
            self._move_horizon(ended[0])
        gone = self._near.pop_ended(ended)
        if gone:
            self.counts.remove(gone)
        if not len(self):
            self.first_offset = None

    def count_dues(self, histogram: DueHistogram) -> None:
        """Add when the entries are due to `histogram`."""
        self._near.count_dues(histogram)
        for columns in (*self._sorted, *self._fresh):
            histogram.add(columns.dues_ms)

    def scan(self, after: Key, until_ms: int, wants: Wants, max_entries: int) -> Scanned:
        """The first wanted entries beyond `after`; what is not sorted yet, or where only some
        targets are wanted all, is searched through."""
        near = self._near.scan(after, until_ms, wants, max_entries)
        upto: Key = (until_ms, LAST_OFFSET)
        columns = [*self._fresh]
        for entries in self._sorted:
            most = max_entries if wants is None else len(entries)
            first, last = entries.first_beyond(after, most)
            columns.append(first)
            upto = min(upto, last or upto)
        names = self._numbers.by_number
        far = columns_scanned(columns, names, after, upto, wants, max_entries)
        return first_scanned([near, far], max_entries, ALL_BYTES)

    def to_columns(self, most_entries: int) -> Generator[int, None, Columns]:
        """All entries, in no order; yields how many each step has made into columns.

        What ends or comes near meanwhile may or may not be among them, once."""
        parts = [*self._sorted, *self._fresh]
        for entries in self._near.batches(most_entries):
            parts.append(columns_of(entries, self._numbers, dues_of(entries), offsets_of(entries)))
            yield len(entries)
        return columns_joined(parts)

    def _keep_far(self, entries: list[Entry], dues_ms: Column, offsets: Column) -> None:
        self._fresh.append(columns_of(entries, self._numbers, dues_ms, offsets))
        self._fresh_from_ms = min(self._fresh_from_ms, int(dues_ms.min()))

    def _move_horizon(self, until_ms: int) -> None:
        self._horizon_ms = self._horizon_beyond(until_ms)
        self._bring_near(self._horizon_ms - 1)

    def _horizon_beyond(self, until_ms: int) -> int:
        return ((until_ms - self._phase_ms) // NEAR_MS + 2) * NEAR_MS + self._phase_ms

    def _bring_near(self, until_ms: int) -> None:
        """Move what is due by `until_ms` from the columns to the tuples.

        What has arrived since the last time is sorted first, so that each time costs about as
        much as has arrived and has come near, however many wait."""
        if self._fresh_from_ms <= until_ms:
            self._sorted.append(columns_joined(self._fresh).in_due_order())
            self._fresh, self._fresh_from_ms = [], NONE_MS
        left: list[Columns] = []
        for columns in self._sorted:
            passed = int(np.searchsorted(columns.dues_ms, until_ms, "right"))
            if passed:
                self._near.add(columns.part(0, passed).entries(self._numbers.by_number))
                columns = columns.part(passed, len(columns))  # noqa: PLW2901
            if len(columns):
                left.append(columns)
        self._sorted = left
