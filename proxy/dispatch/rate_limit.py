"""Bounds on the records that end in a second: of one worker, and of each target topic."""

from typing import Final

BURST_MS: Final = 250
"""What a rate allows and nobody uses is saved up for so long: it may come at once, later."""
REFILL_MS: Final = 50
"""A rate that is used up lets nothing through for so long: few transactions rather than many."""
UNBOUNDED: Final = 2**31


class RateLimit:
    """Lets so many records through a second; a token bucket, full when made.

    Over any stretch of time no more than the rate's share of it and of BURST_MS. Taking more than
    is available is owed, and waited off.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self.burst = max(1, per_second * BURST_MS // 1000)
        self._thousandths = self.burst * 1000
        self._refilled_ms: int | None = None
        self._is_used_up = False

    def records_available(self, now_ms: int) -> int:
        """How many records may go now; below 0 when more have gone than that."""
        if self._refilled_ms is not None:
            earned = max(0, now_ms - self._refilled_ms) * self._per_second
            self._thousandths = min(self.burst * 1000, self._thousandths + earned)
        self._refilled_ms = now_ms
        return self._thousandths // 1000

    def take(self, records: int, now_ms: int) -> None:
        """So many go now."""
        self.records_available(now_ms)
        self._thousandths -= records * 1000

    def wait_ms(self, now_ms: int) -> int:
        """Until enough may go for a transaction to be worth it; 0 while records are available.

        Once used up, a rate has to earn REFILL_MS' share first.
        """
        worth = min(self.burst, max(1, self._per_second * REFILL_MS // 1000))
        available = self.records_available(now_ms)
        self._is_used_up = available < (worth if self._is_used_up else 1)
        if not self._is_used_up:
            return 0
        return -((self._thousandths - worth * 1000) // self._per_second)


class WorkerRateLimit:
    """The bound on all records that end in one worker, whatever their targets; None: no bound.

    What is set at run time counts in place of the settings' bound.
    """

    def __init__(self, of_settings: int | None = None) -> None:
        self._of_settings = of_settings
        self.set_at_run_time: int | None = None
        self._limit = _rate_limit(of_settings)

    def set(self, per_second: int | None) -> None:
        """From now on; None: what the settings say counts again."""
        if per_second != self.set_at_run_time:
            self.set_at_run_time = per_second
            self._limit = _rate_limit(self._of_settings if per_second is None else per_second)

    def records_available(self, now_ms: int) -> int:
        """As of `RateLimit`; without one more than anybody asks for."""
        return UNBOUNDED if self._limit is None else self._limit.records_available(now_ms)

    def take(self, records: int, now_ms: int) -> None:
        """So many go now."""
        if self._limit is not None:
            self._limit.take(records, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Until enough may go for a transaction to be worth it; 0 while records are available."""
        return 0 if self._limit is None else self._limit.wait_ms(now_ms)


def _rate_limit(per_second: int | None) -> RateLimit | None:
    return None if per_second is None else RateLimit(per_second)


class TargetRateLimit:
    """Lets so many records a second through to one target; each further one reserves a time.

    A time is reserved once. A record that comes back at its time finds up to the rate's share of
    BURST_MS more than others do, so that a little disorder sends nobody to the end of the queue.
    """

    def __init__(self, per_second: int, reserved_us: int = 0) -> None:
        self.per_second = per_second
        self._rate = RateLimit(per_second)
        self._step_us = -(-1_000_000 // per_second)
        self._reserved_us = reserved_us

    def at(self, per_second: int) -> "TargetRateLimit":
        """The same queue at another rate. A slower one begins behind the places already given."""
        if per_second == self.per_second:
            return self
        return TargetRateLimit(per_second, self._reserved_us if per_second < self.per_second else 0)

    def reserve(self, now_ms: int, *, has_reserved: bool) -> int | None:
        """None: the record may go now. Else the epoch ms that is reserved for it."""
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
        """This time was reserved, perhaps by a process that has ended."""
        self._reserved_us = max(self._reserved_us, place_ms * 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Whether forgetting it changes nothing."""
        available = self._rate.records_available(now_ms)
        return available == self._rate.burst and self._is_nobody_waiting(now_ms, available)

    def _is_nobody_waiting(self, now_ms: int, available: int) -> bool:
        return available > 0 and self._reserved_us <= now_ms * 1000
