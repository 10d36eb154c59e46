"""Entries not yet on disk: the near ones as tuples, ready to fire, the others as columns."""

from collections.abc import Generator
from itertools import compress

import numpy as np

from storage.shard.columns import ColumnMaker, Columns
from storage.shard.due_histogram import Spread
from storage.shard.recent import Recent
from storage.store import Entry
from storage.wheel.log.records import Column

NONE_MS = 2**63 - 1
NEAR_MS = 1_000
"""Entries due less than once to twice this time after being looked for are kept as tuples."""


class Arrivals(Recent):
    """A table whose entries due at or beyond a horizon are made into columns as they arrive.

    They are hot in the caches then, take half the memory, and are ready to be written."""

    def __init__(self, scanned_ms: int, phase_ms: int = 0) -> None:
        """`phase_ms`: shards whose phases differ do not move their horizons all at once."""
        super().__init__(scanned_ms)
        self._columns = ColumnMaker()
        self._phase_ms = phase_ms
        self._horizon_ms = self._horizon_beyond(scanned_ms)
        self._fresh: list[Columns] = []
        self._fresh_from_ms = NONE_MS
        self._sorted: list[Columns] = []

    def take(self, entries: list[Entry], dues_ms: Column) -> None:
        """Take `entries`, in ingress offset order, with their dues."""
        self._note(entries)
        is_far = dues_ms >= self._horizon_ms
        if is_far.all():
            self._keep_far(entries)
        elif is_far.any():
            self._index(list(compress(entries, (~is_far).tolist())))
            self._keep_far(list(compress(entries, is_far.tolist())))
        else:
            self._index(entries)

    def to_columns(self, most: int) -> Generator[int, None, Columns]:
        """All entries, in no order; yields how many each step has made into columns.

        What ends or comes near meanwhile may or may not be among them, once."""
        parts = [*self._sorted, *self._fresh]
        for entries in self.slices(self.dues_in_order(), most):
            parts.append(self._columns.made_of(entries))
            yield len(entries)
        return self._columns.joined(parts)

    def spread_into(self, spread: Spread) -> None:
        """See `Recent.spread_into`."""
        super().spread_into(spread)
        for columns in (*self._sorted, *self._fresh):
            spread.add(columns.dues_ms)

    def _keep_far(self, entries: list[Entry]) -> None:
        columns = self._columns.made_of(entries)
        self._fresh.append(columns)
        self._fresh_from_ms = min(self._fresh_from_ms, int(columns.dues_ms.min()))

    def _scan(self, until_ms: int) -> None:
        if until_ms >= self._horizon_ms:
            self._horizon_ms = self._horizon_beyond(until_ms)
            self._bring_near(self._horizon_ms - 1)
        super()._scan(until_ms)

    def _horizon_beyond(self, until_ms: int) -> int:
        return ((until_ms - self._phase_ms) // NEAR_MS + 2) * NEAR_MS + self._phase_ms

    def _bring_near(self, until_ms: int) -> None:
        """Move what is due by `until_ms` from the columns to the tuples.

        What has arrived since the last time is sorted first, so that each time costs about as
        much as has arrived and has come near, however many wait."""
        if self._fresh_from_ms <= until_ms:
            self._sorted.append(self._columns.joined(self._fresh).in_due_order())
            self._fresh, self._fresh_from_ms = [], NONE_MS
        left: list[Columns] = []
        for columns in self._sorted:
            passed = int(np.searchsorted(columns.dues_ms, until_ms, "right"))
            if passed:
                self._index(columns.part(0, passed).entries())
                columns = columns.part(passed, len(columns))  # noqa: PLW2901
            if len(columns):
                left.append(columns)
        self._sorted = left
