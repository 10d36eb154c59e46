"""Moved records in a whole proxy on the stand-in Kafka (docs/exactly-once.md#moved-records)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tests.property.test_exactly_once import POLICY, check_conservation, give_disks
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import World
from tests.unit.session.test_pipeline_recalls import HOUR, outcomes, recall, rolled

HOUR_MS = 3_600_000


def move(world: World, offset: int, by_ms: int = 2 * HOUR_MS) -> None:
    world.moving(0, offset, world.time.wall_now_ms + by_ms)()


def pass_hours(world: World, hours: int) -> None:
    world.settle()
    world.time.pass_ms(hours * HOUR_MS)
    world.settle()


@pytest.mark.parametrize("ident", [{}, {"timer-id": "a"}])
def test_a_record_is_delivered_at_its_new_time_once_and_says_where_it_came_from(
    ident: dict[str, str],
) -> None:
    world = World()
    world.send({**HOUR, **ident})
    world.settle()
    move(world, 0)
    world.settle()
    assert outcomes(world) == {0: ("replaced", "moved")}
    pass_hours(world, 1)
    assert world.delivered() == []
    pass_hours(world, 1)
    (record,) = world.delivered()
    assert record.header("timer-origin") == f"{INGRESS}/0/1".encode()
    assert record.header("timer-first-origin") == f"{INGRESS}/0/0".encode()


def test_a_record_may_be_moved_to_an_earlier_time_and_again() -> None:
    world = World()
    world.send(HOUR)
    world.settle()
    move(world, 0)
    world.settle()
    move(world, 1, -1)
    world.settle()
    assert world.origins() == [f"{INGRESS}/0/2"]
    pass_hours(world, 3)
    assert len(world.delivered()) == 1


def test_one_that_keeps_its_due_is_requeued() -> None:
    world = World()
    world.send({"timer-topic": "orders", "timer-deliver-at": str(world.time.wall_now_ms + HOUR_MS)})
    world.settle()
    move(world, 0, HOUR_MS)
    world.settle()
    assert outcomes(world) == {0: ("requeued", "moved")}


def ends_before(world: World, how: str) -> None:
    match how:
        case "due":
            world.time.pass_ms(HOUR_MS)
        case "cancelled":
            world.send({"timer-cancel": "a"})
        case "replaced":
            world.send({**HOUR, "timer-id": "a"})
        case "recalled":
            recall(world, 0)
        case "purged":
            world.purge("orders")


WITHOUT_ID = ["due", "recalled", "purged"]
WAYS: list[tuple[dict[str, str], str]] = [({}, how) for how in WITHOUT_ID]
WAYS += [({"timer-id": "a"}, how) for how in [*WITHOUT_ID, "cancelled", "replaced"]]


@pytest.mark.parametrize(("ident", "how"), WAYS)
def test_what_has_ended_meanwhile_is_not_moved_and_nothing_is_delivered_twice(
    ident: dict[str, str], how: str
) -> None:
    world = World()
    world.send({**HOUR, **ident})
    world.settle()
    write = world.moving(0, 0, world.time.wall_now_ms + 2 * HOUR_MS)
    ends_before(world, how)
    world.settle()
    write()
    world.settle()
    last = world.kafka.end(0) - 1
    assert outcomes(world)[last] == ("missed", "the record has already ended")
    for _ in range(2):
        world.crash()
        pass_hours(world, 3)
    assert [origin for origin in world.origins() if origin.endswith(f"/{last}")] == []


def test_a_replay_long_after_the_old_due_still_delivers_what_was_moved(tmp_path: Path) -> None:
    """This includes local state from before the move, with the record at its old due time."""
    world = World()
    give_disks(world, "wheel", tmp_path)
    world.send(HOUR)
    world.settle()
    world.stop()
    world.machine = 1
    world.settle()
    move(world, 0)
    pass_hours(world, 1)
    assert world.delivered() == []
    world.stop()
    world.machine = 0
    pass_hours(world, 1)
    assert world.origins() == [f"{INGRESS}/0/1"]


def test_a_purge_before_the_move_that_fits_the_new_due_alone_ends_nothing() -> None:
    world = World()
    world.send(HOUR)
    world.settle()
    write = world.moving(0, 0, world.time.wall_now_ms + 2 * HOUR_MS)
    world.purge("orders", world.time.wall_now_ms + HOUR_MS + 1)
    write()
    pass_hours(world, 2)
    assert world.origins() == [f"{INGRESS}/0/2"]


def test_what_was_moved_is_cancelled_recalled_and_purged_as_before() -> None:
    for end in ("cancelled", "recalled", "purged"):
        world = World()
        world.send({**HOUR, "timer-id": "a"})
        world.settle()
        move(world, 0)
        world.settle()
        ends_before(world, end)
        world.settle()
        assert outcomes(world)[1][0] == "cancelled"
        pass_hours(world, 3)
        assert world.delivered() == []


def test_what_was_rewritten_is_moved_where_it_is_now() -> None:
    world = World()
    rolled(world)
    world.settle()
    assert world.moving(0, 0, 1)() is None
    move(world, 1, -1)
    world.settle()
    assert world.origins() == [f"{INGRESS}/0/2"]


def test_a_half_message_is_moved_once_it_is_committed() -> None:
    world = World()
    world.send({**HOUR, "timer-id": "t", "timer-transaction": "prepare"})
    world.settle()
    assert world.moving(0, 0, 1)() is None
    world.send({"timer-id": "t", "timer-transaction": "commit"})
    world.settle()
    move(world, 0)
    pass_hours(world, 1)
    assert outcomes(world)[0] == ("replaced", "moved")
    assert world.delivered() == []
    pass_hours(world, 1)
    assert world.origins() == [f"{INGRESS}/0/2"]


def denied(world: World) -> None:
    world.stop()
    world.policy = replace(world.policy, deny=("orders",))


@pytest.mark.parametrize("keeps_due", [False, True])
@pytest.mark.parametrize("ident", [{}, {"timer-id": "a"}])
def test_a_move_that_the_policy_refuses_ends_the_record_once_in_every_replay(
    ident: dict[str, str], keeps_due: bool
) -> None:
    world = World(targets=("orders", "payments"))
    due_ms = world.time.wall_now_ms + HOUR_MS
    world.send({"timer-topic": "orders", "timer-deliver-at": str(due_ms), **ident})
    world.send({"timer-topic": "payments", "timer-delay": "3h"})
    world.settle()
    write = world.moving(0, 0, due_ms + (0 if keeps_due else HOUR_MS))
    denied(world)
    world.settle()
    write()
    world.settle()
    said = {0: ("requeued" if keeps_due else "replaced", "moved"), 2: ("dead-lettered", ANY)}
    assert outcomes(world) == said
    world.crash()
    pass_hours(world, 4)
    assert outcomes(world) == said
    assert (world.origins(), world.origins("payments")) == ([], [f"{INGRESS}/0/1"])
    check_conservation(world)


def test_what_the_settings_refuse_by_now_is_not_moved_by_hand() -> None:
    world = World()
    world.send(HOUR)
    world.settle()
    denied(world)
    world.settle()
    assert world.moving(0, 0, world.time.wall_now_ms)() is None
    world.settle()
    assert outcomes(world) == {}
    pass_hours(world, 1)
    assert world.origins() == [f"{INGRESS}/0/0"]


@pytest.mark.parametrize("knows_old_policy", [True, False])
def test_a_move_that_the_policy_refuses_and_that_came_too_late_touches_nothing(
    knows_old_policy: bool,
) -> None:
    world = World()
    world.send(HOUR)
    world.settle()
    write = world.moving(0, 0, world.time.wall_now_ms + 2 * HOUR_MS)
    denied(world)
    pass_hours(world, 1)
    world.send(HOUR)
    world.settle()
    if not knows_old_policy:
        world.crash()
    world.settle()
    write()
    pass_hours(world, 2)
    said = outcomes(world)
    assert said == {1: ("dead-lettered", ANY), 2: ("missed", "the record has already ended")}
    assert world.origins() == [f"{INGRESS}/0/0"]


@pytest.mark.parametrize("changed", [{"max_delay_ms": 20}, {"roll_after_ms": 25}])
def test_what_was_read_and_is_not_committed_is_not_moved_yet(changed: dict[str, Any]) -> None:
    """After a crash it is read again, and may end then under the new settings."""
    world = World()
    world.policy, world.interval_ms = replace(POLICY, roll_after_ms=None), 50
    world.turn()
    world.send({"timer-topic": "orders", "timer-delay": "50"})
    world.turn()
    assert world.shards[0].next_offset > world.positions()[0].next_offset
    move(world, 0, 55)
    world.crash()
    world.policy = replace(world.policy, **changed)
    world.turn(2)
    world.time.pass_ms(60)
    world.come_to_an_end()
    check_conservation(world)


@pytest.mark.parametrize("forged", [["timer-hop-fires"], ["timer-hop-fires", "timer-hop-due"]])
def test_nobody_else_moves_records(forged: list[str]) -> None:
    world = World()
    world.send(HOUR)
    hop = {"timer-hop-from": "0", "timer-first-origin": f"{INGRESS}/0/0"}
    world.send({**HOUR, **hop, **dict.fromkeys(forged, "1")})
    world.settle()
    assert outcomes(world)[1][0] == "dead-lettered"
    pass_hours(world, 1)
    assert world.origins() == [f"{INGRESS}/0/0"]
