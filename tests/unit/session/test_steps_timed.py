"""Each loop step is timed, over the sessions of a worker."""

from __future__ import annotations

import pytest

from proxy.admin.queries import QueryMailbox
from proxy.session import session as session_module
from proxy.telemetry.metrics import STEPS
from tests.support.simulation.step_counts import step_counts
from tests.support.simulation.world import World
from tests.unit.session.test_session import a_session, after_turns

TURNS = 4


def test_each_step_of_a_turn_is_timed() -> None:
    world = World()
    for number in range(3):
        world.send({"timer-topic": "orders", "timer-delay": "0"}, key=b"%d" % number)
    world.turn(2)
    counts = step_counts(world.metrics.registry)
    assert [counts[step] for step in STEPS] == [2] * 6 + [0] * 2


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_a_session_does_between_turns_of_the_pipeline_are_steps_too(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryMailbox, "is_empty", not is_asked)
    monkeypatch.setattr(session_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(session_module, "PAUSE_PER_LOOK", 0)
    world = World()
    session, _ = a_session(world)
    session.run(after_turns(TURNS))
    counts = step_counts(world.metrics.registry)
    assert counts["fetch"] == counts["look"] == TURNS
    assert counts["answer"] == (TURNS if is_asked else 0)


def test_steps_of_a_session_that_was_lost_still_count() -> None:
    world = World()
    world.turn(3)
    world.crash()
    world.turn(2)
    assert step_counts(world.metrics.registry)["fetch"] == 5
