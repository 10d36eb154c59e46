"""A session on the stand-in Kafka joins, turns and leaves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from proxy.admin.queries import QueryMailbox
from proxy.config.settings import Resumed, TargetLimit
from proxy.kafka.group import GroupOwners, OwnersUnknown
from proxy.publishing.failures import SessionLost
from proxy.session import session as session_module
from proxy.session.session import Session
from tests.support.simulation.world import World

TURNS = 6


UUID = "-12345678-1234-1234-1234-123456789abc"
OTHER, OWN = f"eu-1-0{UUID}", f"eu-0-1{UUID}"


def answer_of(*members: str) -> Future[GroupOwners]:
    answer: Future[GroupOwners] = Future()
    answer.set_result(GroupOwners(True, frozenset(), frozenset(members)))
    return answer


def a_session(
    world: World, ask_group: Callable[[], Future[GroupOwners]] = answer_of
) -> tuple[Session, list[str]]:
    done: list[str] = []
    reporter: Any = SimpleNamespace(report=lambda: done.append("report"))
    unassigned: Any = SimpleNamespace(look=lambda: done.append("look"))
    clock: Any = SimpleNamespace(
        begin=lambda: done.append("ask"), look=lambda: None, close=lambda: None
    )
    topic: Any = SimpleNamespace(is_another=lambda: world.topic_id != "id-1")
    parts, mailbox = world.assemble(), QueryMailbox()
    return Session(parts, mailbox, reporter, unassigned, clock, topic, ask_group, "eu-0"), done


def after_turns(count: int) -> Callable[[], bool]:
    turns = iter([False] * count)
    return lambda: next(turns, True)


def a_world() -> World:
    world = World()
    world.send({"timer-topic": "orders", "timer-delay": "0"})
    return world


def test_session_delivers_reports_and_commits_what_it_read_as_it_leaves() -> None:
    world = a_world()
    session, done = a_session(world)
    session.run(after_turns(TURNS))
    assert world.origins() == ["timer.ingress/0/0"]
    assert world.kafka.committed[0][0] == 1
    assert done[:3] == ["ask", "report", "look"]


def test_session_leaves_the_group_if_another_instance_can_take_over() -> None:
    world = a_world()
    session, _ = a_session(world, lambda: answer_of(OWN, OTHER))
    session.run(after_turns(TURNS))
    assert world.kafka.places == set()
    assert world.kafka.committed[0][0] == 1


def test_session_of_the_only_instance_keeps_its_place_for_a_restart() -> None:
    world = a_world()
    session, _ = a_session(world, lambda: answer_of(OWN))
    session.run(after_turns(TURNS))
    assert world.kafka.places == {0}


def test_session_keeps_its_place_if_another_instance_would_read_longer_than_a_restart_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "READ_SOON", 1)
    world = World()
    for _ in range(2):
        world.send({"timer-topic": "orders", "timer-delay": "1h"})
    session, _ = a_session(world, lambda: answer_of(OTHER))
    session.run(after_turns(TURNS))
    assert world.kafka.places == {0}


def test_session_leaves_if_the_members_are_not_known() -> None:
    unknown: Future[GroupOwners] = Future()
    unknown.set_exception(OwnersUnknown("the broker is away"))
    world = a_world()
    session, _ = a_session(world, lambda: unknown)
    session.run(after_turns(TURNS))
    assert world.kafka.places == set()


def test_session_delivers_until_it_knows_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = count()
    clock = SimpleNamespace(monotonic=lambda: next(passed_s) / 100)
    world = World()

    def ask_group() -> Future[GroupOwners]:
        world.send({"timer-topic": "orders", "timer-delay": "0"})
        monkeypatch.setattr(session_module, "time", clock)
        return Future()

    session, _ = a_session(world, ask_group)
    session.run(after_turns(TURNS))
    assert world.origins() == ["timer.ingress/0/0"]
    assert world.kafka.places == set()


def test_what_is_paused_as_a_session_begins_is_not_delivered() -> None:
    world = a_world()
    world.policies.paused = frozenset({"orders"})
    session, _ = a_session(world)
    session.run(after_turns(TURNS))
    assert world.origins() == []
    assert world.release.paused == {"orders"}


def test_what_is_set_at_run_time_as_a_session_begins_counts_from_its_first_turn() -> None:
    world = a_world()
    world.policies.is_ingest_paused = True
    world.policies.limits = {"orders": TargetLimit(per_second=5)}
    world.policies.resumed = {"bills": Resumed(world.time.wall_now_ms, 7)}
    world.policies.max_per_second = 3
    session, _ = a_session(world)
    session.run(after_turns(TURNS))
    assert world.cap.set_at_run_time == 3
    assert world.release.limits == world.policies.limits
    assert world.release.release_rates == {"bills": 7}
    assert world.origins() == ["timer.ingress/0/0"], "what was there as it began is taken in"


def test_what_is_set_at_run_time_while_a_session_goes_on_counts_and_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(session_module, "PAUSE_PER_LOOK", 0)
    world = World()
    session, _ = a_session(world)

    def change(turn: int) -> bool:
        if turn in {3, 6}:
            world.policies.is_ingest_paused = turn == 3
            world.policies.has_changed = True
        if turn == 5:
            world.send({"timer-topic": "orders", "timer-delay": "0"})
        if turn == 6:
            assert world.origins() == []
        return turn > 9

    turns = iter(range(99))
    with capture_logs() as logs:
        session.run(lambda: change(next(turns)))
    assert world.origins() == ["timer.ingress/0/0"]
    said = [line["event"] for line in logs if "ingest is" in line["event"]]
    assert [event.partition(":")[0] for event in said] == [
        "the ingest is paused by an operator",
        "the ingest is resumed",
    ]


@pytest.mark.parametrize(
    ("look_s", "apart_s"), [(0.0, 0.25), (0.02, 0.25), (0.05, 0.5), (0.1, 0.75), (3.0, 3.0)]
)
def test_looks_that_take_long_are_farther_apart_but_never_so_far_that_status_is_old(
    look_s: float, apart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, begun_s = 100.0, list[float]()
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=lambda: now_s))

    def report() -> None:
        nonlocal now_s
        begun_s.append(now_s)
        now_s += look_s

    def has_passed() -> bool:
        nonlocal now_s
        now_s += 0.001
        return len(begun_s) > 3

    session, _ = a_session(World())
    session.reporter = cast(Any, SimpleNamespace(report=report))
    session.run(has_passed)
    assert [b - a for a, b in pairwise(begun_s)] == pytest.approx([apart_s] * 3, abs=0.005)


def test_session_ends_once_partitions_are_lost() -> None:
    world = a_world()
    session, _ = a_session(world)
    world.kafka.rebalances.append(("on_lost", 0))
    with pytest.raises(SessionLost, match="assigned this member's partitions to another member"):
        session.run(lambda: False)


def test_session_that_has_lost_partitions_takes_none_over_before_it_ends() -> None:
    """The stand-in returns them at once. Their committed offsets belong to the next session."""
    world = a_world()
    session, _ = a_session(world)
    world.kafka.rebalances.append(("on_lost", 0))
    with capture_logs() as logs, pytest.raises(SessionLost):
        session.run(lambda: False)
    taken_over = [line["partition"] for line in logs if line["event"] == "shard taken over"]
    assert taken_over == [0]


def test_session_ends_once_the_ingress_is_another_topic() -> None:
    world = a_world()
    session, _ = a_session(world)
    world.topic_id = "id-2"
    with pytest.raises(SessionLost, match="created again"):
        session.run(lambda: False)
