"""Ids: the record that each names, and the effect of reuse."""

from __future__ import annotations

from functools import partial

import pytest

from proxy.protocol.policy import Policy
from tests.support.simulation.world import World

POLICY = Policy(
    roll_after_ms=1_000, levels_ms=(100,), retry_first_level=1, immunity_ms=500, max_checks=2
)


def a_world() -> World:
    world = World()
    world.policy = POLICY
    return world


def record(world: World, ident: str = "a", delay: str = "500ms", topic: str = "orders") -> None:
    world.send({"timer-topic": topic, "timer-delay": delay, "timer-id": ident})


def cancel(world: World, ident: str = "a") -> None:
    world.send({"timer-cancel": ident})


def how_all_ended(world: World) -> list[str]:
    ends = {int(origin.rpartition("/")[2]): what for origin, what, _ in world.ends()}
    return [ends.get(offset, "pending") for offset in range(world.kafka.end(0))]


def pass_all(world: World, turns: int = 10) -> None:
    for _ in range(turns):
        world.time.pass_ms(600)
        world.settle()


def test_cancel_ends_a_record_at_once_however_far_its_due() -> None:
    world = a_world()
    record(world, delay="300d")
    cancel(world)
    world.settle()
    assert how_all_ended(world) == ["cancelled", "applied"]
    pass_all(world)
    assert world.delivered() == []


def test_newer_record_replaces_the_older_one_and_says_so() -> None:
    world = a_world()
    record(world)
    record(world, delay="100ms")
    pass_all(world)
    assert how_all_ended(world) == ["replaced", "delivered"]
    (ended,) = world.evidence().outcomes["timer.ingress/0/0"]
    assert ended["next_origin"] == "timer.ingress/0/1"


def test_cancel_misses_what_has_not_come_or_has_gone() -> None:
    world = a_world()
    cancel(world)
    record(world)
    pass_all(world)
    cancel(world)
    cancel(world)
    world.settle()
    assert how_all_ended(world) == ["missed", "delivered", "missed", "missed"]


def test_replaced_record_is_not_counted_as_pending() -> None:
    world = a_world()
    record(world)
    record(world)
    record(world, "b")
    cancel(world, "b")
    world.settle()
    assert world.shards[0].pending() == 1
    assert world.shards[0].pending_by_target() == ({"orders": 1}, 0)


def test_cancel_before_takeover_counts_though_its_record_is_overdue() -> None:
    world = a_world()
    record(world)
    world.settle()
    world.crash()
    world.time.pass_ms(5_000)
    record(world, "b", delay="100ms")
    cancel(world)
    world.batch_records = 1
    world.settle()
    assert how_all_ended(world) == ["cancelled", "pending", "applied"]


def test_cancel_that_arrives_in_the_very_turn_of_the_due_comes_first() -> None:
    world = a_world()
    record(world)
    world.settle()
    cancel(world)
    world.time.pass_ms(500)
    world.turn()
    assert how_all_ended(world) == ["cancelled", "applied"]


@pytest.mark.parametrize(
    ("meanwhile", "ends"),
    [
        ("C", ["rolled", "applied", "cancelled"]),
        ("R", ["rolled", "delivered", "replaced"]),
        ("CC", ["rolled", "applied", "missed", "cancelled"]),
        ("CR", ["rolled", "applied", "delivered", "replaced"]),
        ("RC", ["rolled", "cancelled", "applied", "cancelled"]),
        ("RR", ["rolled", "replaced", "delivered", "replaced"]),
    ],
)
@pytest.mark.parametrize("crashes", [False, True])
def test_what_comes_while_a_record_is_rewritten_ends_its_successor(
    meanwhile: str, ends: list[str], crashes: bool
) -> None:
    """C is a cancel, R a record with the id, each before the successor in the log."""
    world = a_world()
    record(world, delay="1500ms")
    world.settle()
    world.time.pass_ms(1_000)
    for what in meanwhile:
        world.kafka.meanwhile.append(partial(cancel if what == "C" else record, world))
    world.turn()
    if crashes:
        world.crash()
    pass_all(world)
    assert how_all_ended(world) == ends


def test_cancel_after_several_rolls_still_finds_its_record() -> None:
    world = a_world()
    record(world, delay="1h")
    pass_all(world)
    cancel(world)
    world.settle()
    assert how_all_ended(world)[-2:] == ["cancelled", "applied"]
    assert set(how_all_ended(world)[:-2]) == {"rolled"}


def test_cancel_finds_a_record_that_waits_for_its_topic() -> None:
    world = a_world()
    record(world, topic="nowhere", delay="0")
    world.settle()
    cancel(world)
    pass_all(world)
    assert how_all_ended(world) == ["requeued", "cancelled", "applied"]


def test_floor_stays_below_what_ended_a_successor_until_both_are_passed() -> None:
    """A replay from the floor must meet the cancel before the successor."""
    world = a_world()
    record(world, delay="1500ms")
    record(world, "other", delay="700ms")
    world.settle()
    world.time.pass_ms(1_000)
    world.kafka.meanwhile.append(lambda: cancel(world))
    world.turn(2)
    for _ in range(5):
        world.crash()
        world.settle()
        assert world.shards[0].pending() == 0
    assert how_all_ended(world)[:3] == ["rolled", "delivered", "applied"]
    assert how_all_ended(world)[3] == "cancelled"


def test_id_of_a_rejected_record_names_nothing_and_replaces_nothing() -> None:
    world = a_world()
    record(world)
    world.send({"timer-topic": "no topic!", "timer-id": "a"})
    pass_all(world)
    assert how_all_ended(world) == ["delivered", "dead-lettered"]
