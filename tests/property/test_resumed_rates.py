"""Resumes at a rate: the rate is kept and used, rewrites are few, other targets are on time.

Whole runs with rolls, crashes, other machines, pauses and limits in between.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from proxy.config.settings import Resumed, TargetLimit
from proxy.dispatch.release_control import BURST_MS, ReleaseControl
from tests.property.test_exactly_once import POLICY, check_conservation, give_disks
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import OUTCOMES, World

STEP_MS = 100
SEEDS = range(int(os.environ.get("RESUMED_SEEDS", "12")))
ON_TIME_MS = 1_500


class Run:
    """One proxy at a time, and an operator who pauses and resumes `orders` and `bills`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(2, None, self.random.choice([5, 10_000]), ("orders", "bills", "alerts"))
        self.roll_ms = self.random.randint(4, 20) * 1_000
        self.world.policy = replace(POLICY, max_delay_ms=600_000, roll_after_ms=self.roll_ms)
        self.world.max_step_ms = 0
        self.paused: set[str] = set()
        self.resumed: dict[str, Resumed] = {}
        self.limits: dict[str, TargetLimit] = {}
        self.restarts = self.resumes = 0
        self.alerts_due_ms: list[int] = []
        self.rate_began: dict[str, tuple[int, int, int]] = {}
        """Start of the rate, held records delivered before it, and restarts, by target."""
        self.began_ms = self.world.time.wall_now_ms

    @property
    def now_ms(self) -> int:
        return self.world.time.wall_now_ms

    def apply(self) -> None:
        self.world.release.pause(self.paused, self.resumed)
        self.world.release.limit(self.limits)

    def pause(self, target: str) -> None:
        self._check_rate(target)
        self.paused.add(target)
        self.apply()

    def resume(self, target: str, per_second: int | None) -> None:
        self._check_rate(target)
        self.paused.discard(target)
        self.resumed[target] = Resumed(self.now_ms, per_second)
        self.resumes += 1
        self.rate_began[target] = self.now_ms, self._held(target), self.restarts
        self.apply()

    def restart(self) -> None:
        self.random.choice([self.world.crash, self.world.stop])()
        self.world.machine = self.random.randint(0, 1)
        self.world.release = ReleaseControl()
        self.restarts += 1
        self.apply()

    def send(self, target: str) -> None:
        if target == "alerts":
            self.alerts_due_ms.append(self.now_ms + 200)
        self.world.send(
            {"timer-topic": target, "timer-delay": "200"}, partition=self.random.randint(0, 1)
        )

    def step(self) -> None:
        self.world.time.pass_ms(STEP_MS)
        self.world.turn(3)
        on_time = sum(due_ms <= self.now_ms - ON_TIME_MS for due_ms in self.alerts_due_ms)
        assert len(self.world.delivered("alerts")) >= on_time

    def _check_rate(self, target: str) -> None:
        began, end = self.rate_began.pop(target, None), self.resumed.get(target)
        if began is None or end is None or end.per_second is None or target in self.paused:
            return
        began_ms, before, restarts = began
        burst = max(1, end.per_second * BURST_MS // 1000)
        most = 2 * burst * (1 + self.restarts - restarts)
        came = self._held(target) - before
        assert came <= end.per_second * (self.now_ms - began_ms) / 1000 + most + 1

    def _held(self, target: str) -> int:
        dues = [int(one.header("timer-due") or 0) for one in self.world.delivered(target)]
        return sum(due_ms < self.resumed[target].at_ms for due_ms in dues)

    def drain(self) -> None:
        for target in ("orders", "bills"):
            if target in self.paused:
                self.resume(target, self.random.choice([None, 5, 20]))
        self.limits = {}
        self.apply()
        start_ms, left = self.now_ms, self._left()
        rates = [end.per_second for end in self.resumed.values() if end.per_second]
        until_ms = start_ms + 1_000 * left // min(rates, default=1_000) + 6_000
        while self._left():
            assert self.now_ms < until_ms, f"{self._left()} of {left} are left"
            self.step()
        for target in ("orders", "bills"):
            self._check_rate(target)

    def _left(self) -> int:
        firsts = sum(
            record.header("timer-first-origin") is None for record in self.world.kafka.read(INGRESS)
        )
        return firsts - sum(len(self.world.delivered(topic)) for topic in self.world.kafka.topics)

    def check_rewrites(self) -> None:
        """Check rewrites: one pause and one queue time a resume, one a restart, and rolls."""
        first_of = {
            f"{INGRESS}/{record.partition()}/{record.offset()}": record.header("timer-first-origin")
            or f"{INGRESS}/{record.partition()}/{record.offset()}".encode()
            for record in self.world.kafka.read(INGRESS)
        }
        ends = [json.loads(record.value() or b"") for record in self.world.kafka.read(OUTCOMES)]
        rewritten = Counter((first_of[end["origin"]], end["outcome"]) for end in ends)
        rolls = 1 + (self.now_ms - self.began_ms) // self.roll_ms + self.restarts + self.resumes
        most = {"requeued": 2 * self.resumes + 2 * self.restarts + 2, "rolled": rolls}
        for (first, outcome), times in rewritten.items():
            assert times <= most.get(outcome, 1 + self.restarts), (first, outcome, times)


def play(run: Run) -> None:
    random, targets = run.random, ("orders", "bills")
    for target in targets:
        run.pause(target)
    for _ in range(random.randint(20, 120)):
        run.send(random.choice([*targets, "alerts"]))
        run.world.time.pass_ms(random.choice([0, 50, 200]))
        run.world.turn()
    for target in targets:
        run.resume(target, random.choice([2, 5, 20, None]))
    for _ in range(random.randint(20, 250)):
        run.step()
        if random.random() < 0.1:
            run.send(random.choice(["alerts", *targets]))
        if random.random() < 0.01:
            run.restart()
        if random.random() < 0.02:
            target = random.choice(targets)
            if target in run.paused:
                run.resume(target, random.choice([2, 5, 20, None]))
            else:
                run.pause(target)
        if random.random() < 0.01:
            run.limits = {"bills": TargetLimit(per_second=random.choice([10, 40]))}
            run.apply()
    run.drain()


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_resume_keeps_its_rate_uses_it_and_rewrites_little(seed: int, *, on_disk: bool) -> None:
    """Invariant: no target exceeds its rate or wastes it. A record is rewritten at most twice for
    each resume and restart, besides its rolls. Other records are on time."""
    run = Run(seed)
    with tempfile.TemporaryDirectory() as folder:
        if on_disk:
            give_disks(run.world, "wheel", Path(folder))
        try:
            play(run)
        finally:
            run.world.crash()
    run.check_rewrites()
    check_conservation(run.world)
