"""What an operator does in the middle of the demo: pause, reschedule, purge, resume."""

import time
from collections.abc import Callable

from proxy.cli.trial.demo.evidence import Sent
from proxy.cli.trial.demo.operator_calls import OperatorCalls
from proxy.cli.trial.demo.stories import (
    BILLS,
    PAUSED,
    PURGED,
    REMINDERS,
    RESCHEDULED,
    purge_control,
)
from proxy.cli.trial.demo.traffic import PATIENCE_S, DemoFailed, Traffic
from proxy.clock import wall_clock_ms

MOVED_MS = 6_000
PER_SECOND = 6


class OperatorSteps:
    """Each step says what it does by `tell`; all raise DemoFailed and what the calls raise."""

    def __init__(self, calls: OperatorCalls, traffic: Traffic, tell: Callable[[str], None]) -> None:
        self._calls, self._traffic, self._tell = calls, traffic, tell

    def pause(self) -> None:
        """Before anything is sent for the target."""
        self._tell(f"an operator pauses {BILLS}")
        self._calls.pause(BILLS)

    def reschedule(self) -> None:
        """What is due in many seconds is due in a few."""
        (one,) = self._traffic.group(RESCHEDULED)
        due_ms = wall_clock_ms() + MOVED_MS
        self._calls.reschedule(self._traffic.sent[one.ident].origin, due_ms)
        self._traffic.is_due_at(RESCHEDULED, due_ms)
        delay_s, moved_s = one.delay_ms // 1000, MOVED_MS // 1000
        self._tell(f"reschedule: what was to come after {delay_s} s comes in {moved_s} s")

    def purge(self) -> None:
        """Counted by a dry run first."""
        traffic, deadline = self._traffic, time.monotonic() + PATIENCE_S
        records = len(traffic.group(PURGED))
        while (counted := self._calls.count_purged(REMINDERS)) != records:
            if time.monotonic() > deadline:
                raise DemoFailed(f"A dry run counts {counted} of {records} for {REMINDERS}.")
            traffic.read_until(time.monotonic() + 0.2)
        self._tell(f"purge of {REMINDERS}, a dry run: {counted} records wait")
        for number, origin in enumerate(self._calls.purge(REMINDERS)):
            control = purge_control(number)
            traffic.plan.append(control)
            traffic.sent[control.ident] = Sent(origin, 0)
        self._tell(f"purge of {REMINDERS}: none of them will arrive")

    def resume(self) -> None:
        """Once all has been held back that falls due while its target is paused."""
        traffic, paused = self._traffic, self._traffic.group(PAUSED)
        traffic.read_until(time.monotonic() + PATIENCE_S, self._are_parked)
        if not self._are_parked() or traffic.arrived(PAUSED):
            raise DemoFailed(f"{BILLS} is paused, and not all that is due is held back.")
        self._tell(f"{BILLS} is paused: {len(paused)} records are due, none has arrived")
        traffic.is_due_at(PAUSED, wall_clock_ms())
        self._calls.resume(BILLS, PER_SECOND)
        self._tell(f"an operator resumes {BILLS}, {PER_SECOND} records a second")
        traffic.read_arrivals([wanted.ident for wanted in paused])
        self._expect_rate()

    def _are_parked(self) -> bool:
        ends, sent = self._traffic.evidence.ends_by_root(), self._traffic.sent
        return all(sent[one.ident].origin in ends for one in self._traffic.group(PAUSED))

    def _expect_rate(self) -> None:
        """Each partition has its share of the rate, and goes on alone once others are done."""
        times_ms = [one.appended_ms for one in self._traffic.arrived(PAUSED)]
        took_s = (max(times_ms, default=0) - min(times_ms, default=0)) / 1000
        if took_s < len(times_ms) / PER_SECOND / 2:
            raise DemoFailed(f"{len(times_ms)} records for {BILLS} came in {took_s:.1f} s.")
        self._tell(f"all {len(times_ms)} have arrived, within {took_s:.1f} s")
