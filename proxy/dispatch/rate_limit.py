"""Bounds on the records that end in a second: of one worker, and of each target topic."""

from typing import Final

BURST_MS: Final = 250
"""Unused rate is saved up for this long. It may come at once, later."""
REFILL_MS: Final = 50
"""A rate that is used up lets nothing through for this long: few transactions, not many."""


class RateLimit:
    """A token bucket, full when made. Taking more than is available is owed, and waited off."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self.burst = max(1, per_second * BURST_MS // 1000)
        self._thousandths = self.burst * 1000
        self._refilled_ms: int | None = None
        self._is_used_up = False

    def records_available(self, now_ms: int) -> int:
        """Return how many records may go now; below 0 if more have gone."""
        if self._refilled_ms is not None:
            earned = max(0, now_ms - self._refilled_ms) * self._per_second
            self._thousandths = min(self.burst * 1000, self._thousandths + earned)
        self._refilled_ms = now_ms
        return self._thousandths // 1000

    def take(self, records: int, now_ms: int) -> None:
        """Let this many go now."""
        self.records_available(now_ms)
        self._thousandths -= records * 1000

    def wait_ms(self, now_ms: int) -> int:
        """Return the wait until a transaction is worth it; 0 while records are available.

        A rate that is used up has to earn the share of REFILL_MS first.
        """
        worth = min(self.burst, max(1, self._per_second * REFILL_MS // 1000))
        available = self.records_available(now_ms)
        self._is_used_up = available < (worth if self._is_used_up else 1)
        if not self._is_used_up:
            return 0
        return -((self._thousandths - worth * 1000) // self._per_second)


class WorkerRateLimit:
    """The bound on all records that end in one worker; None: no bound.

    A bound set at run time counts in place of the settings' bound.
    """

    def __init__(self, of_settings: int | None = None) -> None:
        self._of_settings = of_settings
        self.set_at_run_time: int | None = None
        self.limit = None if of_settings is None else RateLimit(of_settings)

    def set(self, per_second: int | None) -> None:
        """Count from now on. None: the settings' bound counts again."""
        if per_second != self.set_at_run_time:
            self.set_at_run_time = per_second
            now = self._of_settings if per_second is None else per_second
            self.limit = None if now is None else RateLimit(now)


class TargetRateLimit:
    """A rate for one target. Each record beyond it reserves a time, once.

    A record that comes back at its time finds up to the share of BURST_MS more than others do. So
    a little disorder sends none to the end of the queue.
    """

    def __init__(self, per_second: int, reserved_us: int = 0) -> None:
        self.per_second = per_second
        self._rate = RateLimit(per_second)
        self._step_us = -(-1_000_000 // per_second)
        self._reserved_us = reserved_us

    def at(self, per_second: int) -> "TargetRateLimit":
        """Return the same queue at another rate. A slower one begins behind the given places."""
        if per_second == self.per_second:
            return self
        return TargetRateLimit(per_second, self._reserved_us if per_second < self.per_second else 0)

    def reserve(self, now_ms: int, *, has_reserved: bool) -> int | None:
        """Return None if the record may go now, else the epoch ms that is reserved for it."""
        available = self._rate.records_available(now_ms)
        may_go = (
            available > -self._rate.burst
            if has_reserved
            else self._is_nobody_waiting(now_ms, available)
        )
        if may_go:
            self._rate.take(1, now_ms)
            return None
        return self.next_place_ms(now_ms)

    def next_place_ms(self, now_ms: int) -> int:
        """Reserve the time behind all others."""
        self._reserved_us = max(self._reserved_us, now_ms * 1000) + self._step_us
        return -(-self._reserved_us // 1000)

    def note(self, place_ms: int) -> None:
        """Note that this time was reserved, perhaps by a process that has ended."""
        self._reserved_us = max(self._reserved_us, place_ms * 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether forgetting it changes nothing."""
        available = self._rate.records_available(now_ms)
        return available == self._rate.burst and self._is_nobody_waiting(now_ms, available)

    def _is_nobody_waiting(self, now_ms: int, available: int) -> bool:
        return available > 0 and self._reserved_us <= now_ms * 1000
