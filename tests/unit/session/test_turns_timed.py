"""The loop keeps what its turns took, over the sessions of a worker."""

from __future__ import annotations

import pytest

from proxy.admin.query_mailbox import QueryMailbox
from proxy.session import session as session_module
from proxy.telemetry.turn_log import STEPS
from tests.support.simulation.world import World
from tests.unit.session.test_session import a_session, after_turns


def test_a_turn_of_the_pipeline_is_kept_with_its_steps_and_records() -> None:
    world = World()
    for number in range(3):
        world.send({"timer-topic": "orders", "timer-delay": "0"}, key=b"%d" % number)
    world.settle()
    rows = world.metrics.turns.read().rows
    assert (rows["fetched"].sum(), rows["ended"].sum()) == (3, 3)
    assert all((rows[step][1:] > 0).all() for step in STEPS[:2])
    busy = rows[rows["fetched"] > 0]
    assert len(busy)
    assert all((busy[step] > 0).all() for step in STEPS[:6])


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_a_session_does_between_turns_of_the_pipeline_are_steps_too(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryMailbox, "is_empty", not is_asked)
    monkeypatch.setattr(session_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(session_module, "PAUSE_PER_LOOK", 0)
    world = World()
    session, _ = a_session(world)
    session.run(after_turns(4))
    rows = world.metrics.turns.read().rows
    assert len(rows) == 5
    assert (rows["look"][1:] > 0).all()
    assert (rows["answer"][1:] > 0).all() == (rows["answer"] > 0).any() == is_asked


def test_turns_of_a_session_that_was_lost_are_still_there() -> None:
    world = World()
    world.turn(3)
    world.crash()
    world.turn(2)
    assert len(world.metrics.turns.read().rows) == 6
