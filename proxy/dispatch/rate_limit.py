"""A bound on the records that end in a second: the settings' `release.max_per_second`."""

from __future__ import annotations

from typing import Final

from proxy.config.settings import ReleaseSettings

BURST_MS: Final = 250
"""What a rate allows and nobody uses is saved up for so long: it may come at once, later."""
REFILL_MS: Final = 50
"""A rate that is used up lets nothing through for so long: few transactions rather than many."""


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

    def available(self, now_ms: int) -> int:
        """How many records may go now; below 0 when more have gone than that."""
        if self._refilled_ms is not None:
            earned = max(0, now_ms - self._refilled_ms) * self._per_second
            self._thousandths = min(self.burst * 1000, self._thousandths + earned)
        self._refilled_ms = now_ms
        return self._thousandths // 1000

    def take(self, records: int, now_ms: int) -> None:
        """So many go now."""
        self.available(now_ms)
        self._thousandths -= records * 1000

    def wait_ms(self, now_ms: int) -> int:
        """Until enough may go for a transaction to be worth it; 0 while records are available.

        Once used up, a rate has to earn REFILL_MS' share first.
        """
        worth = min(self.burst, max(1, self._per_second * REFILL_MS // 1000))
        available = self.available(now_ms)
        self._is_used_up = available < (worth if self._is_used_up else 1)
        if not self._is_used_up:
            return 0
        return -((self._thousandths - worth * 1000) // self._per_second)


class Unlimited:
    """No limit at all, where `RateLimit` is expected."""

    def available(self, now_ms: int) -> int:  # noqa: ARG002
        """More than anybody asks for."""
        return 2**31

    def take(self, records: int, now_ms: int) -> None:
        """Nothing is used up."""

    def wait_ms(self, now_ms: int) -> int:  # noqa: ARG002
        """Nobody waits."""
        return 0


def release_rate(settings: ReleaseSettings) -> RateLimit | Unlimited:
    """The limit on all records that end, as the settings say."""
    per_second = settings.max_per_second
    return Unlimited() if per_second is None else RateLimit(per_second)
