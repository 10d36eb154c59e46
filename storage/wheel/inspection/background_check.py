"""Looks through a wheel's log beside delivery, after the machine was started anew."""

from collections.abc import Iterator

import numpy as np

from storage.errors import StoreDamaged
from storage.shard.ledger import Ledger
from storage.shard.memory.columns import are_beyond
from storage.store import Column
from storage.wheel.inspection.needed_bodies import needed_bytes, too_short
from storage.wheel.log.records import Rows, joined
from storage.wheel.wheel_files import WheelFiles


class BackgroundCheck:
    """When the machine stopped, writes may have been lost in any order. The wheel itself was
    compared with the checkpoint as it was opened; each run and body is checked when it is read.
    This is so that damage is found within minutes, and not when the record is due.

    Chains that begin soon come first. Those written since need no look."""

    def __init__(self, files: WheelFiles, ledger: Ledger) -> None:
        self.is_over = False
        self._files, self._ledger = files, ledger
        places, wheel = files.wheel.held(), files.wheel
        now = ledger.watermark_ms // files.options.precision_ms % wheel.slots
        self._places = np.roll(places, -int(np.searchsorted(places, now)))
        self._steps = self._follow(self._places)
        self._rows: list[Rows] = []

    def look(self, budget_records: int) -> None:
        """Go on for about so many records. Raises StoreDamaged."""
        spent = 0
        while spent < budget_records and not self.is_over:
            step = next(self._steps, None)
            self.is_over = step is None
            spent += step or 0
        rows, self._rows = self._rows, []
        if rows:
            self._look_for_bodies(joined(rows))

    def _follow(self, places: Column) -> Iterator[int]:
        """The chains of these places, run by run: about how many records each step was worth."""
        for place in places.tolist():
            yield 1
            yield from self._chain(place)

    def _chain(self, place: int) -> Iterator[int]:
        """Between two steps it may have been written anew, and its segments dropped: whatever does
        that has read it."""
        wheel = self._files.wheel
        head = wheel.head(place)
        try:
            for run in self._files.chain(place, head):
                self._rows.append(run.rows)
                yield run.records
        except StoreDamaged:
            if wheel.head(place) == head:
                raise

    def _look_for_bodies(self, rows: Rows) -> None:
        """Only of what pends: other files may be gone."""
        pends = are_beyond(rows["due_ms"], rows["offset"], self._ledger.ended)
        if lacking := too_short(self._files.bodies, needed_bytes(rows.compress(pends))):
            raise StoreDamaged(lacking[0])
