"""Which laps of the wheel its chains reach into, as far as reading them has told."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage.store import Column
from storage.wheel.log.records import Head
from storage.wheel.timer_wheel import LAST_WINDOW_SLOTS, TimerWheel

LAPS = 64
"""Laps are told apart modulo this: more of a year than there is, with slots of a second."""
FIRST_WINDOW_SLOTS = 256


class ChainLaps:
    """A place's chain holds records of several laps, and says only which is its lowest slot number.
    So whoever goes from lap to lap would read each chain once a lap.

    Of a chain that was read this remembers its laps, until it changes: then its newest run is
    another one. 16 bytes a slot, once anything is remembered."""

    def __init__(self, wheel: TimerWheel) -> None:
        self._wheel = wheel
        self.forget()

    def forget(self) -> None:
        """Give the memory back."""
        self._last: Column | None = None
        self._laps: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._highest = -1

    def note(self, slot: int, head: Head, slots: Sequence[int]) -> None:
        """The chain of slot number `slot` holds runs of these slot numbers."""
        if self._last is None:
            self._last = np.full(self._wheel.slots, -1, np.int64)
            self._laps = np.zeros(self._wheel.slots, np.uint64)
        place = slot % self._wheel.slots
        bits = 0
        for number in slots:
            bits |= 1 << (number // self._wheel.slots) % LAPS
        self._last[place], self._laps[place] = head.last, bits
        self._highest = max(self._highest, *slots)

    def next_slots(self, slot: int, last: int) -> list[int]:
        """The first slot numbers from `slot` on whose chains may hold records of them, some at a
        time; none where there is none in this lap, up to `last`."""
        lap, place = divmod(slot, self._wheel.slots)
        base = lap * self._wheel.slots
        end, width = min(self._wheel.slots, last + 1 - base), FIRST_WINDOW_SLOTS
        while (place := self._wheel.next_touched(place)) < end:
            places = slice(place, min(place + width, end))
            found = np.flatnonzero(self._may_hold(places, lap))
            if found.size:
                slots: list[int] = (found + base + place).tolist()
                return slots
            place, width = place + width, min(2 * width, LAST_WINDOW_SLOTS)
        return []

    def next_lap(self, slot: int) -> int | None:
        """The first slot number of the next lap that any chain may reach into."""
        slots, lap = self._wheel.slots, slot // self._wheel.slots
        held = self._wheel.held()
        unread = self._wheel.cells["time"][held[~self._is_known(held)]]
        laps = [max(int(unread.min()) // slots, lap + 1)] if unread.size else []
        bits = int(np.bitwise_or.reduce(self._laps)) if self._laps.size else 0
        ahead = (lap + step for step in range(1, LAPS + 1))
        laps += [one for one in ahead if bits >> one % LAPS & 1 and one <= self._highest // slots][
            :1
        ]
        return min(laps) * slots if laps else None

    def _may_hold(self, places: slice, lap: int) -> npt.NDArray[np.bool_]:
        cells = self._wheel.cells[places]
        numbers = np.arange(places.start, places.stop) + lap * self._wheel.slots
        maybe: npt.NDArray[np.bool_] = (cells["count"] > 0) & (cells["time"] <= numbers)
        if self._last is not None:
            reaches = self._laps[places] >> np.uint64(lap % LAPS) & np.uint64(1)
            maybe &= ~self._is_known(places) | reaches.astype(np.bool_)
        return maybe

    def _is_known(self, places: slice | Column) -> npt.NDArray[np.bool_]:
        last = self._wheel.cells["last"][places]
        if self._last is None:
            return np.zeros(last.size, np.bool_)
        known: npt.NDArray[np.bool_] = self._last[places] == last
        return known
