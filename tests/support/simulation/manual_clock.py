"""Time that moves only when a test says so."""

from __future__ import annotations

from proxy.clock import BrokerTime, Clock

START_MS = 1_800_000_000_000


class ManualTime:
    """A machine's wall clock and monotonic clock, and the broker's clock, in the test's hands."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.wall_now_ms = self.broker_now_ms = now_ms
        self.monotonic_now_ms = 1_000

    def pass_ms(self, elapsed_ms: int) -> None:
        """All clocks move on."""
        self.wall_now_ms += elapsed_ms
        self.broker_now_ms += elapsed_ms
        self.monotonic_now_ms += elapsed_ms

    def sleep_ms(self, elapsed_ms: int) -> None:
        """The machine sleeps, and its monotonic clock stands still."""
        self.wall_now_ms += elapsed_ms
        self.broker_now_ms += elapsed_ms

    def step_ms(self, jump_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.wall_now_ms += jump_ms

    def broker_time(self) -> BrokerTime:
        """What a broker that is asked now answers at once."""
        return BrokerTime(self.broker_now_ms, self.monotonic_now_ms)

    def clock(self, max_step_ms: int = 5_000) -> Clock:
        """The proxy's clock, reading this time; the broker has not been asked."""
        return Clock(max_step_ms, lambda: self.wall_now_ms, lambda: self.monotonic_now_ms)
