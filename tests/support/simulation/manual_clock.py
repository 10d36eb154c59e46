"""Time that moves only when a test says so."""

from __future__ import annotations

from proxy.clock import Clock

START_MS = 1_800_000_000_000


class ManualTime:
    """A wall clock and a monotonic clock in the test's hands."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.wall_now_ms = now_ms
        self.monotonic_now_ms = 1_000

    def pass_ms(self, elapsed_ms: int) -> None:
        """Both clocks move on."""
        self.wall_now_ms += elapsed_ms
        self.monotonic_now_ms += elapsed_ms

    def step_ms(self, jump_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.wall_now_ms += jump_ms

    def clock(self, max_step_ms: int = 5_000) -> Clock:
        """The proxy's clock, reading this time."""
        return Clock(max_step_ms, lambda: self.wall_now_ms, lambda: self.monotonic_now_ms)
