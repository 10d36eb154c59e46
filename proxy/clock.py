"""The logical clock that decides which records are due (docs/exactly-once.md#7-never-early).

It never goes back. If the wall clock is too far ahead, the broker's clock decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

CONFIRMED_AFTER_MS: Final = 60_000
"""If the broker's time is unknown, a jump of the wall clock is believed after this time."""


def wall_clock_ms() -> int:
    """Return epoch ms by this machine's wall clock, rounded down."""
    return time.time_ns() // 1_000_000


def monotonic_clock_ms() -> int:
    """Return milliseconds of a clock that cannot be set."""
    return time.monotonic_ns() // 1_000_000


class BrokerTime(NamedTuple):
    """The broker's time `epoch_ms` at this machine's monotonic time `monotonic_ms`."""

    epoch_ms: int
    monotonic_ms: int

    def after(self, monotonic_ms: int) -> int:
        return self.epoch_ms + monotonic_ms - self.monotonic_ms


class Moment(NamedTuple):
    """The present: epoch ms that have certainly been reached, and monotonic ms for intervals."""

    now_ms: int
    elapsed_ms: int


class Clock:
    """Follows a wall clock up to `max_step_ms` ahead of the broker's time, else the broker's time.
    If the broker's time is unknown, this clock's last time plus the time since then replaces it."""

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
        self._append_ms = -1

    def now_ms(self) -> int:
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
        return Moment(self.now_ms(), self._monotonic_ms())

    def record_time_ms(self) -> int:
        """Return the time for new records: the later of logical and broker's time. Topics refuse
        times too far from the broker's time (message.timestamp.before.max.ms)."""
        return max(self.now_ms(), self.broker_ms or 0)

    def set_broker_time(self, broker: BrokerTime | None) -> None:
        self._broker = broker

    def observe_broker(self, timestamp_ms: int) -> None:
        """Note a timestamp by the broker (LogAppendTime): the broker's clock has reached it."""
        self._append_ms = max(self._append_ms, timestamp_ms)
        read_at_ms = self._monotonic_ms()
        if self._broker is not None and timestamp_ms > self._broker.after(read_at_ms):
            self._broker = BrokerTime(timestamp_ms, read_at_ms)

    @property
    def is_held(self) -> bool:
        """Return whether the wall clock is too far ahead."""
        return self._held_since_ms is not None

    @property
    def stands_still(self) -> bool:
        """Return whether the wall clock is too far ahead and the broker's time is unknown."""
        return self.is_held and self._broker is None

    @property
    def offset_ms(self) -> int:
        """Return wall clock minus logical clock. Negative after the wall clock was set back."""
        return 0 if self._now_ms is None else self._wall_ms() - self._now_ms

    @property
    def lead_ms(self) -> int | None:
        """Return wall clock minus broker's clock."""
        broker_ms = self.broker_ms
        return None if broker_ms is None else self._wall_ms() - broker_ms

    @property
    def broker_ms(self) -> int | None:
        return None if self._broker is None else self._broker.after(self._monotonic_ms())

    def ahead_ms(self, epoch_ms: int) -> int:
        """Return the ms until `epoch_ms` by the broker's clock if known, or by the logical one."""
        broker_ms = self.broker_ms
        return max(0, epoch_ms - (self.now_ms() if broker_ms is None else broker_ms))

    def _confirmed(self, wall_ms: int, read_at_ms: int) -> bool:
        """Return whether to believe the wall clock's jump: never if the broker's time is known."""
        if self._broker is not None:
            return False
        if self._append_ms >= wall_ms - self.max_step_ms:
            return True
        since_ms = self._held_since_ms
        return since_ms is not None and read_at_ms - since_ms >= CONFIRMED_AFTER_MS
