"""A clock ahead of the broker's clock, and the watermark set back afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.options import StoreKind
from tests.property.test_exactly_once import (
    PARTITIONS,
    POLICY,
    RULES,
    TARGETS,
    give_disks,
    perform,
    steps_with_bodies,
)
from tests.support.oracle.conservation import violations
from tests.support.simulation.executors import AtOnce, WhenAsked
from tests.support.simulation.world import World

pytestmark = pytest.mark.rest

EARLY = (" early", "before its time")
HOUR_MS = 3_600_000
Script = list[tuple[object, ...]]


def run(kind: StoreKind | None, scripts: list[Script], lead_ms: int, limit: int) -> None:
    commits = WhenAsked() if limit % 2 else AtOnce()
    world = World(PARTITIONS, None, limit, (*TARGETS, "checks"), commits)
    world.policy, world.max_step_ms = POLICY, 0
    with tempfile.TemporaryDirectory() as folder:
        if kind is not None:
            give_disks(world, kind, Path(folder))
        try:
            _play(world, scripts[0])
            world.crash()
            world.asks_broker_time = False
            world.time.step_ms(lead_ms)
            _play(world, scripts[1])
            world.crash()
            world.asks_broker_time = True
            world.time.step_ms(-lead_ms)
            world.set_back_watermark = tuple(range(PARTITIONS))
            _play(world, scripts[2])
            world.come_to_an_end()
        finally:
            world.crash()
    wrong = violations(world.evidence(("checks",)), RULES)
    assert [one for one in wrong if not any(word in one for word in EARLY)] == []


def _play(world: World, script: Script) -> None:
    for step in script:
        perform(world, step)


scripts = st.lists(steps_with_bodies, min_size=3, max_size=3)


@settings(max_examples=100, deadline=None)
@given(scripts, st.integers(1, 100), st.integers(1, 6))
def test_every_record_still_ends_once_from_the_broker_alone(
    scripts: list[Script], lead_ms: int, limit: int
) -> None:
    """Invariant: after early records each record still ends once, as the log order says."""
    run(None, scripts, lead_ms, limit)


@settings(max_examples=75, deadline=None)
@given(scripts, st.integers(1, 100), st.integers(1, 6))
def test_every_record_still_ends_once_with_two_machines_and_their_disks(
    scripts: list[Script], lead_ms: int, limit: int
) -> None:
    """Invariant: after early records each record ends once, however old the disk is."""
    run("wheel", scripts, lead_ms, limit)


def test_a_disk_from_before_does_not_bring_back_what_has_ended(tmp_path: Path) -> None:
    """One machine keeps the record, one delivers it early, one sets the watermark back."""
    world = World()
    give_disks(world, "wheel", tmp_path)
    world.send({"timer-topic": "orders", "timer-delay": "9h"})
    world.send({"timer-topic": "orders", "timer-delay": "1h"})
    world.settle()
    world.stop()
    world.machine, world.asks_broker_time = 1, False
    world.time.step_ms(2 * HOUR_MS)
    world.settle()
    world.stop()
    world.machine, world.asks_broker_time = 2, True
    world.time.step_ms(-2 * HOUR_MS)
    world.set_back_watermark = (0,)
    world.send({"timer-topic": "orders", "timer-delay": "1s"})
    world.time.pass_ms(1_000)
    world.settle()
    world.stop()
    world.machine = 0
    world.time.pass_ms(3 * HOUR_MS)
    world.settle()
    world.stop()
    assert world.origins() == ["timer.ingress/0/1", "timer.ingress/0/2"]
