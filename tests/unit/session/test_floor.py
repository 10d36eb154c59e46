"""The floor follows ended records, with any overlap of related records."""

from __future__ import annotations

from tests.support.simulation.world import World

ROUNDED_MS = 2_048
"""A link may be forgotten this much later than possible."""


def prepare(world: World, number: int, **more: str) -> None:
    asked = {"timer-topic": "orders", "timer-id": f"t{number}", "timer-transaction": "prepare"}
    world.send({**asked, **{name.replace("_", "-"): text for name, text in more.items()}})


def commit(world: World, number: int) -> None:
    world.send({"timer-id": f"t{number}", "timer-transaction": "commit"})


def pass_ms(world: World, elapsed_ms: int) -> None:
    world.time.pass_ms(elapsed_ms)
    world.send({"timer-topic": "orders"})
    world.settle()


def test_half_messages_that_overlap_for_ever_do_not_hold_the_floor() -> None:
    world = World()
    prepare(world, 0)
    for number in range(50):
        prepare(world, number + 1)
        commit(world, number)
        pass_ms(world, ROUNDED_MS)
    (position,) = world.positions()
    assert position.floor >= world.kafka.end(0) - 9


def test_half_message_is_needed_while_its_commit_waits() -> None:
    world = World()
    prepare(world, 0, timer_delay="60s")
    commit(world, 0)
    pass_ms(world, 1)
    assert [position.floor for position in world.positions()] == [0]
    pass_ms(world, 60_000)
    pass_ms(world, 60_000)
    assert [position.floor for position in world.positions()] == [world.kafka.end(0) - 1]
