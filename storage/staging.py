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
        runs = stretches(slots)
        block, starts = _block(rows, runs)
        base = self._log.reserve(block.size * RECORD_BYTES)
        numbers = slots[[start for start, _ in runs]].tolist()
        positions = [base + start * RECORD_BYTES for start in starts]
        counts = [count for _, count in runs]
        self._link(block, starts, numbers, positions, counts)
        self._log.write(seal(block, list(zip(starts, counts, strict=True))))
        self.live[self._log.number(base)] += rows.size
        return numbers, positions

    def _link(
        self,
        block: Rows,
        starts: list[int],
        numbers: list[int],
        positions: list[int],
        counts: list[int],
    ) -> None:
        places = [number % self._wheel.slots for number in numbers]
        olds = self._wheel.heads(np.array(places))
        fields: list[tuple[int, ...]] = []
        for number, place, position, count, stored in zip(
            numbers, places, positions, counts, olds, strict=True
        ):
            old = self.heads.get(place, stored)
            if old.records:
                head = Head(min(old.time, number), old.first, position, old.records + count)
            else:
                head = Head(number, position, position, count)
            self.heads[place] = head
            fields.append(
                (RUN_MAGIC, 0, number, old.last, head.time, head.first, head.records, count)
            )
        block.view(HEADER)[starts] = np.array(fields, HEADER)


def _block(rows: Rows, runs: Sequence[tuple[int, int]]) -> tuple[Rows, list[int]]:
    """Room for the runs with a header row before each, records in place; the header rows."""
    block = np.zeros(rows.size + len(runs), RECORD)
    starts = [start + before for before, (start, _) in enumerate(runs)]
    records = np.ones(block.size, np.bool_)
    records[starts] = False
    block[records] = rows
    return block, starts
