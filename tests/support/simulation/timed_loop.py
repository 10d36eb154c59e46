"""A loop whose steps take as long as a test says."""

from __future__ import annotations

from typing import cast

from proxy.telemetry.turn_log import MOST_TURNS, Step, TurnLog

BEGAN_S = 1_000.0
EPOCH_S = 1_800_000_000.0


class TimedLoop:
    """Its log, and clocks that are moved by hand."""

    def __init__(self, most: int = MOST_TURNS) -> None:
        self.now_s, self.cpu_s = BEGAN_S, 0.0
        self.log = TurnLog(
            most, lambda: self.now_s, lambda: EPOCH_S + self.now_s, lambda: self.cpu_s
        )

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds

    def turn(
        self,
        *,
        fetched: int = 0,
        ended: int = 0,
        may_wait: float = 0.0,
        other: float = 0.0,
        cpu: float = 0.0,
        **steps: float,
    ) -> None:
        """One turn; how long each step takes, how much passes outside them, and what of all that is
        spent on a CPU, in seconds."""
        self.log.begin()
        self.log.may_wait(may_wait)
        for step, seconds in steps.items():
            self.log.timed(cast(Step, step), self.pass_s, seconds)
        self.log.count_fetched(fetched)
        self.log.count_ended(ended)
        self.pass_s(other)
        self.cpu_s += cpu
