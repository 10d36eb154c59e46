"""The logical clock that decides what is due (docs/exactly-once.md#7-never-early).

It never goes back, and where the wall clock is ahead it goes by the broker's: delivering late is a
delay, delivering early is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

CONFIRMED_AFTER_MS: Final = 60_000
"""Where the broker's time is not known, a jump that lasts for so long is taken for a correction."""


def wall_clock_ms() -> int:
    """Epoch ms by this machine's wall clock, rounded down."""
    return time.time_ns() // 1_000_000


def monotonic_clock_ms() -> int:
    """Milliseconds that no one can set back or forth."""
    return time.monotonic_ns() // 1_000_000


class BrokerTime(NamedTuple):
    """The broker's clock had reached `epoch_ms` when this machine's monotonic clock showed
    `monotonic_ms`."""

    epoch_ms: int
    monotonic_ms: int

    def after(self, monotonic_ms: int) -> int:
        """What the broker's clock has reached by then."""
        return self.epoch_ms + monotonic_ms - self.monotonic_ms


class Moment(NamedTuple):
    """`now_ms` is epoch ms that have certainly been reached: what is due goes by it. It may stand
    still for long, so intervals go by `elapsed_ms`, of the monotonic clock."""

    now_ms: int
    elapsed_ms: int


class Clock:
    """Wall time, but never more than `max_step_ms` ahead of the time it is held against.

    That is the broker's once `set_broker_time` has been called; before, what the monotonic clock
    has added to the last time that was believed. `wall_ms` and `monotonic_ms` are read at each
    `now_ms`; tests hand in their own.
    """

    def __init__(
        self,
        max_step_ms: int,
        wall_ms: Callable[[], int] = wall_clock_ms,
        monotonic_ms: Callable[[], int] = monotonic_clock_ms,
    ) -> None:
        self.max_step_ms = max_step_ms
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        self._now_ms: int | None = None
        self._read_at_ms = monotonic_ms()
        self._held_since_ms: int | None = None
        self._broker: BrokerTime | None = None
        self._stamp_ms = -1

    def now_ms(self) -> int:
        """Epoch ms that are certain to have been reached."""
        wall_ms, read_at_ms = self._wall_ms(), self._monotonic_ms()
        last_ms = wall_ms if self._now_ms is None and self._broker is None else self._now_ms or 0
        certain_ms = last_ms + read_at_ms - self._read_at_ms
        if self._broker is not None:
            certain_ms = self._broker.after(read_at_ms)
        self._read_at_ms = read_at_ms
        if wall_ms <= certain_ms + self.max_step_ms or self._confirmed(wall_ms, read_at_ms):
            self._held_since_ms = None
            self._now_ms = max(last_ms, wall_ms)
        else:
            if self._held_since_ms is None:
                self._held_since_ms = read_at_ms
            self._now_ms = max(last_ms, certain_ms)
        return self._now_ms

    def moment(self) -> Moment:
        """The present, for dues and for intervals."""
        return Moment(self.now_ms(), self._monotonic_ms())

    def stamp_ms(self) -> int:
        """The time that records carry: the logical one, or the broker's where that is later.

        Topics refuse times that are too far from the broker's (message.timestamp.before.max.ms).
        """
        return max(self.now_ms(), self.broker_ms or 0)

    def set_broker_time(self, broker: BrokerTime | None) -> None:
        """What the broker has answered; None: it cannot be asked."""
        self._broker = broker

    def observe_broker(self, timestamp_ms: int) -> None:
        """A time that the broker itself wrote (LogAppendTime): its clock has come that far."""
        self._stamp_ms = max(self._stamp_ms, timestamp_ms)
        read_at_ms = self._monotonic_ms()
        if self._broker is not None and timestamp_ms > self._broker.after(read_at_ms):
            self._broker = BrokerTime(timestamp_ms, read_at_ms)

    @property
    def is_held(self) -> bool:
        """True while the wall clock is ahead by more than it may be."""
        return self._held_since_ms is not None

    @property
    def stands_still(self) -> bool:
        """True while held with no broker's time to go by."""
        return self.is_held and self._broker is None

    @property
    def offset_ms(self) -> int:
        """Wall clock minus logical clock: positive while held, negative after a step back."""
        return 0 if self._now_ms is None else self._wall_ms() - self._now_ms

    @property
    def lead_ms(self) -> int | None:
        """Wall clock minus the broker's; None where that is not known."""
        broker_ms = self.broker_ms
        return None if broker_ms is None else self._wall_ms() - broker_ms

    @property
    def broker_ms(self) -> int | None:
        """What the broker's clock has reached; None where that is not known."""
        return None if self._broker is None else self._broker.after(self._monotonic_ms())

    def ahead_ms(self, epoch_ms: int) -> int:
        """How far this time lies in the future by the broker's clock, or else by this one; 0 if it
        has come."""
        broker_ms = self.broker_ms
        return max(0, epoch_ms - (self.now_ms() if broker_ms is None else broker_ms))

    def _confirmed(self, wall_ms: int, read_at_ms: int) -> bool:
        """The broker's time needs no confirmation, and its contradiction does not age."""
        if self._broker is not None:
            return False
        if self._stamp_ms >= wall_ms - self.max_step_ms:
            return True
        since_ms = self._held_since_ms
        return since_ms is not None and read_at_ms - since_ms >= CONFIRMED_AFTER_MS
