"""Runs appended to the log, and their chains, before a checkpoint confirms them."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from storage.options import RECORD_BYTES
from storage.store import Column
from storage.wheel.log.records import (
    EMPTY,
    HEADER,
    RECORD,
    RUN_MAGIC,
    Head,
    Rows,
    boundaries,
    seal,
)
from storage.wheel.log.timer_log import TimerLog
from storage.wheel.timer_wheel import TimerWheel

HEAD_FIELDS = len(Head._fields)
FIRST_HEADS = 4
"""Heads there is room for at first: so few that every test of a flush sees the room grow."""


class ChainWriter:
    """Runs written and chains changed since the last checkpoint, over an untouched wheel.

    Dropping the object and cutting the log undoes all of it."""

    def __init__(self, wheel: TimerWheel, log: TimerLog) -> None:
        self.live: Counter[int] = Counter()
        self._wheel = wheel
        self._log = log
        self._index: npt.NDArray[np.int32] = np.full(wheel.slots, -1, np.int32)
        self._places = np.zeros(FIRST_HEADS, np.int64)
        self._heads = np.zeros((FIRST_HEADS, HEAD_FIELDS), np.int64)
        self._changed = 0

    def head(self, slot: int) -> Head:
        """The chain of slot number `slot` as it will be."""
        place = slot % self._wheel.slots
        at = int(self._index[place])
        if at < 0:
            return self._wheel.head(place)
        head = Head(*self._heads[at].tolist())
        return head if head.records else EMPTY

    def restart(self, slot: int, dead: Mapping[int, int]) -> None:
        """Let the chain of slot number `slot` begin anew: its runs are dead. `dead`: how many
        records they hold in each segment, which whoever has read the chain knows."""
        for number, records in dead.items():
            self.live[number] -= records
        at = self._rows_of(np.array([slot % self._wheel.slots]))  # may replace self._heads
        self._heads[at] = EMPTY

    def changes(self, most: int) -> Iterator[tuple[Column, Column]]:
        """Places and their new heads (n x 3), `most` at a time."""
        for start in range(0, self._changed, most):
            end = min(start + most, self._changed)
            yield self._places[start:end], self._heads[start:end]

    def write(self, rows: Rows) -> tuple[Column, Column]:
        """Append sorted rows as one run per slot; slot number and position of each run."""
        slots = rows["due_ms"] // self._log.precision_ms
        laps: list[tuple[Column, Column]] = []
        start = 0
        while start < rows.size:
            # Within one lap every slot number has a place of its own.
            end = int(np.searchsorted(slots, slots[start] + self._wheel.slots))
            laps.append(self._append(rows[start:end], slots[start:end]))
            start = end
        if len(laps) == 1:
            return laps[0]
        return np.concatenate([lap[0] for lap in laps]), np.concatenate([lap[1] for lap in laps])

    def _append(self, rows: Rows, slots: Column) -> tuple[Column, Column]:
        firsts, counts = boundaries(slots)
        headers = firsts + np.arange(firsts.size)
        block = _block(rows, headers)
        base = self._log.reserve(block.size * RECORD_BYTES)
        numbers = slots[firsts]
        positions = base + headers * RECORD_BYTES
        self._link(block.view(HEADER), headers, numbers, positions, counts)
        self._log.write(seal(block, headers, counts))
        self.live[self._log.number(base)] += rows.size
        return numbers, positions

    def _link(
        self, block: Rows, headers: Column, numbers: Column, positions: Column, counts: Column
    ) -> None:
        at = self._rows_of(numbers % self._wheel.slots)
        old = self._heads[at]
        chained = old[:, 2] > 0
        new = np.empty_like(old)
        new[:, 0] = np.where(chained, np.minimum(old[:, 0], numbers), numbers)
        new[:, 1] = positions
        new[:, 2] = old[:, 2] * chained + counts
        filled = np.zeros(headers.size, HEADER)
        filled["magic"] = RUN_MAGIC
        filled["prev"] = np.where(chained, old[:, 1], -1)
        filled["time"] = new[:, 0]
        filled["chain"] = new[:, 2]
        filled["count"] = counts
        block.put(headers, filled)
        self._heads[at] = new

    def _rows_of(self, places: Column) -> Column:
        """Where the heads of these places, all different, are kept; takes them from the wheel."""
        at = self._index[places].astype(np.int64)
        unseen = at < 0
        fresh = int(np.count_nonzero(unseen))
        if fresh:
            self._make_room(fresh)
            numbers = np.arange(self._changed, self._changed + fresh)
            self._places[numbers] = places[unseen]
            self._heads[numbers] = self._wheel.table(places[unseen])
            self._index[places[unseen]] = numbers
            self._changed += fresh
            at[unseen] = numbers
        return at

    def _make_room(self, fresh: int) -> None:
        lacking = self._changed + fresh - self._places.size
        if lacking > 0:
            more = max(lacking, self._places.size)
            self._places = np.concatenate((self._places, np.zeros(more, np.int64)))
            self._heads = np.concatenate((self._heads, np.zeros((more, HEAD_FIELDS), np.int64)))


def _block(rows: Rows, headers: Column) -> Rows:
    """Room for the runs, records in place, with an empty row for each header."""
    block = np.zeros(rows.size + headers.size, RECORD)
    records = np.ones(block.size, np.bool_)
    records[headers] = False
    block.put(np.flatnonzero(records), rows)
    return block
