"""Entries not yet on disk: the near ones as tuples, ready to fire, the others as columns."""

from collections.abc import Generator
from itertools import compress

from storage.columns import ColumnMaker, Columns
from storage.recent import Recent
from storage.records import Column
from storage.store import Entry

NEAR_MS = 1_000
"""Entries due within this time of being looked for are kept as tuples."""
NONE_MS = 2**63 - 1


class Arrivals(Recent):
    """A table whose entries due at or beyond a horizon are made into columns as they arrive.

    They are hot in the caches then, take half the memory, and are ready to be written."""

    def __init__(self, scanned_ms: int) -> None:
        super().__init__(scanned_ms)
        self._columns = ColumnMaker()
        self._horizon_ms = scanned_ms + NEAR_MS
        self._parts: list[Columns] = []
        self._first_ms = NONE_MS

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
        parts = [self._far()]
        for entries in self.slices(self.dues_in_order(), most):
            parts.append(self._columns.made_of(entries))
            yield len(entries)
        return self._columns.joined(parts)

    def _keep_far(self, entries: list[Entry]) -> None:
        part = self._columns.made_of(entries)
        self._parts.append(part)
        self._first_ms = min(self._first_ms, int(part.dues_ms.min()))

    def _scan(self, until_ms: int) -> None:
        if until_ms >= self._horizon_ms:
            self._bring_near(until_ms + NEAR_MS)
        super()._scan(until_ms)

    def _bring_near(self, until_ms: int) -> None:
        self._horizon_ms = until_ms + 1
        if self._first_ms > until_ms:
            return
        near, far = self._far().split(until_ms)
        self._parts = [far]
        self._first_ms = int(far.dues_ms.min()) if len(far) else NONE_MS
        self._index(near.entries())

    def _far(self) -> Columns:
        """Everything far, as one part."""
        self._parts = [self._columns.joined(self._parts)]
        return self._parts[0]
