"""The rate of one target topic: the settings' `release.per_target`."""

from __future__ import annotations

from proxy.dispatch.rate_limit import RateLimit


class TargetRateLimit:
    """Lets so many records a second through to one target; each further one reserves a time.

    A time is reserved once. A record that comes back at its time finds up to the rate's share of
    BURST_MS more than others do, so that a little disorder sends nobody to the end of the queue.
    """

    def __init__(self, per_second: int) -> None:
        self._rate = RateLimit(per_second)
        self._step_us = -(-1_000_000 // per_second)
        self._reserved_us = 0

    def reserve(self, now_ms: int, *, has_reserved: bool) -> int | None:
        """None: the record may go now. Else the epoch ms that is reserved for it."""
        available = self._rate.available(now_ms)
        may_go = (
            available > -self._rate.burst
            if has_reserved
            else self._is_nobody_waiting(now_ms, available)
        )
        if may_go:
            self._rate.take(1, now_ms)
            return None
        self._reserved_us = max(self._reserved_us, now_ms * 1000) + self._step_us
        return -(-self._reserved_us // 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Whether forgetting it changes nothing."""
        available = self._rate.available(now_ms)
        return available == self._rate.burst and self._is_nobody_waiting(now_ms, available)

    def _is_nobody_waiting(self, now_ms: int, available: int) -> bool:
        return available > 0 and self._reserved_us <= now_ms * 1000
