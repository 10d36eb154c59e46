"""The logical clock that decides what is due (docs/exactly-once.md#7-never-early).

It never goes back, and it does not believe a forward jump of the wall clock until something
else confirms it: delivering late is a delay, delivering early is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

CONFIRMED_AFTER_MS: Final = 60_000
"""A jump that the wall clock keeps for this long is taken for a correction."""


def wall_clock_ms() -> int:
    """Epoch ms by this machine's wall clock, rounded down."""
    return time.time_ns() // 1_000_000


def monotonic_clock_ms() -> int:
    """Milliseconds that no one can set back or forth."""
    return time.monotonic_ns() // 1_000_000


class Clock:
    """Wall time, held back to the monotonic clock's pace while a forward jump is unconfirmed.

    `wall_ms` and `monotonic_ms` are read at each `now_ms`; tests hand in their own.
    """

    def __init__(
        self,
        max_step_ms: int,
        wall_ms: Callable[[], int] = wall_clock_ms,
        monotonic_ms: Callable[[], int] = monotonic_clock_ms,
    ) -> None:
        self._max_step_ms = max_step_ms
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        self._now_ms = wall_ms()
        self._read_at_ms = monotonic_ms()
        self._held_since_ms: int | None = None
        self._broker_ms = -1

    def now_ms(self) -> int:
        """Epoch ms that are certain to have been reached."""
        wall_ms, read_at_ms = self._wall_ms(), self._monotonic_ms()
        expected_ms = self._now_ms + (read_at_ms - self._read_at_ms)
        self._read_at_ms = read_at_ms
        if wall_ms <= expected_ms + self._max_step_ms or self._confirmed(wall_ms, read_at_ms):
            self._held_since_ms = None
            self._now_ms = max(self._now_ms, wall_ms)
        else:
            if self._held_since_ms is None:
                self._held_since_ms = read_at_ms
            self._now_ms = expected_ms
        return self._now_ms

    def observe_broker(self, timestamp_ms: int) -> None:
        """A time that the broker itself wrote (LogAppendTime): it confirms a jump up to there."""
        self._broker_ms = max(self._broker_ms, timestamp_ms)

    @property
    def is_held(self) -> bool:
        """True while a forward jump waits for its confirmation."""
        return self._held_since_ms is not None

    @property
    def offset_ms(self) -> int:
        """Wall clock minus logical clock: positive while held, negative after a step back."""
        return self._wall_ms() - self._now_ms

    def _confirmed(self, wall_ms: int, read_at_ms: int) -> bool:
        if self._broker_ms >= wall_ms - self._max_step_ms:
            return True
        since_ms = self._held_since_ms
        return since_ms is not None and read_at_ms - since_ms >= CONFIRMED_AFTER_MS
