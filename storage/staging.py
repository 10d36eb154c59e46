"""Changes to the log that no checkpoint has confirmed yet."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from storage.log import TimerLog
from storage.options import RECORD_BYTES
from storage.records import (
    EMPTY,
    HEADER,
    RECORD,
    RUN_MAGIC,
    Column,
    Head,
    Rows,
    seal,
    stretches,
)
from storage.wheel import TimerWheel


class Staging:
    """Runs written and chains changed since the last checkpoint, over an untouched wheel.

    Dropping the object and cutting the log undoes all of it."""

    def __init__(self, wheel: TimerWheel, log: TimerLog, precision_ms: int) -> None:
        self.heads: dict[int, Head] = {}
        self.live: Counter[int] = Counter()
        self._wheel = wheel
        self._log = log
        self._precision_ms = precision_ms

    def head(self, slot: int) -> Head:
        """The chain of slot number `slot` as it will be."""
        place = slot % self._wheel.slots
        return self.heads.get(place) or self._wheel.head(place)

    def restart(self, slot: int) -> None:
        """Let the chain of slot number `slot` begin anew: its runs are dead."""
        for run in self._log.chain(self.head(slot), checked=False):
            self.live[self._log.number(run.position)] -= run.records
        self.heads[slot % self._wheel.slots] = EMPTY

    def write(self, rows: Rows) -> tuple[list[int], list[int]]:
        """Append sorted rows as one run per slot; slot number and position of each run."""
        slots = rows["due_ms"] // self._precision_ms
        numbers: list[int] = []
        positions: list[int] = []
        start = 0
        while start < rows.size:
            # Within one lap every slot number has a place of its own.
            end = int(np.searchsorted(slots, slots[start] + self._wheel.slots))
            lap_numbers, lap_positions = self._append(rows[start:end], slots[start:end])
            numbers += lap_numbers
            positions += lap_positions
            start = end
        return numbers, positions

    def _append(self, rows: Rows, slots: Column) -> tuple[list[int], list[int]]:
        runs = stretches(slots)
        block, starts = _block(rows, runs)
        base = self._log.reserve(block.size * RECORD_BYTES)
        numbers = slots[[start for start, _ in runs]]
        positions = base + np.array(starts) * RECORD_BYTES
        counts = [count for _, count in runs]
        self._link(block.view(HEADER), starts, numbers, positions, np.array(counts))
        self._log.write(seal(block, list(zip(starts, counts, strict=True))))
        self.live[self._log.number(base)] += rows.size
        return numbers.tolist(), positions.tolist()

    def _link(
        self, headers: Rows, starts: list[int], numbers: Column, positions: Column, counts: Column
    ) -> None:
        places = numbers % self._wheel.slots
        old = self._old_heads(places)
        chained = old[:, 3] > 0
        new = np.empty_like(old)
        new[:, 0] = np.where(chained, np.minimum(old[:, 0], numbers), numbers)
        new[:, 1] = np.where(chained, old[:, 1], positions)
        new[:, 2] = positions
        new[:, 3] = old[:, 3] + counts
        headers["magic"][starts] = RUN_MAGIC
        headers["slot"][starts] = numbers
        headers["prev"][starts] = np.where(chained, old[:, 2], -1)
        headers["time"][starts] = new[:, 0]
        headers["first"][starts] = new[:, 1]
        headers["chain"][starts] = new[:, 3]
        headers["count"][starts] = counts
        heads = map(Head._make, new.tolist())
        self.heads.update(zip(places.tolist(), heads, strict=True))

    def _old_heads(self, places: Column) -> Column:
        """time, first, last, records of each place's chain as it will be so far."""
        old = self._wheel.table(places)
        for row, place in enumerate(places.tolist()):
            if place in self.heads:
                old[row] = self.heads[place]
        return old


def _block(rows: Rows, runs: Sequence[tuple[int, int]]) -> tuple[Rows, list[int]]:
    """Room for the runs with a header row before each, records in place; the header rows."""
    block = np.zeros(rows.size + len(runs), RECORD)
    starts = [start + before for before, (start, _) in enumerate(runs)]
    records = np.ones(block.size, np.bool_)
    records[starts] = False
    block[records] = rows
    return block, starts
