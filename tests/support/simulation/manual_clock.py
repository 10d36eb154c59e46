"""Manual time for tests."""

from __future__ import annotations

from proxy.clock import BrokerTime, Clock

START_MS = 1_800_000_000_000


class ManualTime:
    def __init__(self, now_ms: int = START_MS) -> None:
        self.wall_now_ms = self.broker_now_ms = now_ms
        self.monotonic_now_ms = 1_000

    def pass_ms(self, elapsed_ms: int) -> None:
        self.wall_now_ms += elapsed_ms
        self.broker_now_ms += elapsed_ms
        self.monotonic_now_ms += elapsed_ms

    def sleep_ms(self, elapsed_ms: int) -> None:
        """Let the machine sleep. The monotonic clock stands still."""
        self.wall_now_ms += elapsed_ms
        self.broker_now_ms += elapsed_ms

    def step_ms(self, jump_ms: int) -> None:
        self.wall_now_ms += jump_ms

    def broker_time(self) -> BrokerTime:
        return BrokerTime(self.broker_now_ms, self.monotonic_now_ms)

    def clock(self, max_step_ms: int = 5_000) -> Clock:
        return Clock(max_step_ms, lambda: self.wall_now_ms, lambda: self.monotonic_now_ms)
