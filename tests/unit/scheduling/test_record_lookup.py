"""A shard's knowledge of a record, by id and by place."""

from __future__ import annotations

import pytest

from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.policy import Policy
from proxy.scheduling.pending import Found, find_id, find_record
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import World

ORDER = {"timer-topic": "orders", "timer-delay": "10s"}


def by_id(world: World, ident: bytes = b"a") -> Found | None:
    return find_id(world.shards[0], ident)


def at(world: World, offset: int) -> Found:
    return find_record(world.shards[0], world.kafka.logs[INGRESS, 0][offset])


def test_a_pending_record_is_found_by_id_and_by_place() -> None:
    world = World()
    world.send({**ORDER, "timer-id": "a"})
    world.settle()
    due_ms = START_MS + 10_000
    expected = Found("timer.ingress/0/0", b"a", "pending", "orders", due_ms, due_ms)
    assert (by_id(world), at(world, 0)) == (expected, expected)
    assert by_id(world, b"b") is None


def test_a_record_without_an_id_pends_until_it_has_fired() -> None:
    world = World()
    world.send(dict(ORDER))
    world.settle()
    assert at(world, 0).state == "pending"
    world.time.pass_ms(10_000)
    world.settle()
    ended = Found("timer.ingress/0/0", None, "ended", "orders", START_MS + 10_000, None)
    assert at(world, 0) == ended


@pytest.mark.parametrize("then", [{"timer-cancel": "a"}, {**ORDER, "timer-id": "a"}])
def test_a_record_that_was_cancelled_or_replaced_has_ended(then: dict[str, str]) -> None:
    world = World()
    world.send({**ORDER, "timer-id": "a"})
    world.send(dict(then))
    world.settle()
    assert at(world, 0).state == "ended"
    found = by_id(world)
    assert (found and found.origin) == (None if "timer-cancel" in then else "timer.ingress/0/1")


def test_a_half_message_is_one_until_it_is_decided() -> None:
    world = World()
    world.send({**ORDER, "timer-id": "a", "timer-transaction": "prepare"})
    world.settle()
    half = Found("timer.ingress/0/0", b"a", "half-message", "orders", START_MS + 10_000, None)
    assert (by_id(world), at(world, 0)) == (half, half)
    world.send({"timer-id": "a", "timer-transaction": "commit"})
    world.settle()
    due_ms = START_MS + 10_000
    pending = Found("timer.ingress/0/0", b"a", "pending", "orders", due_ms, due_ms)
    assert (by_id(world), at(world, 0)) == (pending, pending)
    assert at(world, 1) == Found("timer.ingress/0/1", b"a", "ended")


def test_records_that_are_no_deliveries_have_ended() -> None:
    world = World()
    world.send({"timer-cancel": "a"})
    world.send({"timer-delay": "1s"})
    world.settle()
    assert at(world, 0) == Found("timer.ingress/0/0", b"a", "ended")
    assert at(world, 1) == Found("timer.ingress/0/1", None, "ended")


def test_a_record_with_a_place_in_line_says_what_it_asked_for_and_when_it_is_looked_at() -> None:
    world = World()
    world.release = ReleaseControl({"orders": 1})
    for ident in "ab":
        world.send({**ORDER, "timer-id": ident})
    world.settle()
    world.time.pass_ms(10_000)
    world.turn(3)
    due_ms = START_MS + 10_000
    found = by_id(world, b"b")
    assert found == Found("timer.ingress/0/2", b"b", "pending", "orders", due_ms, due_ms + 1_000)
    assert at(world, 2) == found
    assert at(world, 1).state == "ended"


@pytest.mark.parametrize("more", [{}, {"timer-id": "a"}])
def test_a_record_that_rolls_says_what_it_asked_for_and_when_it_is_rewritten(
    more: dict[str, str],
) -> None:
    world = World()
    world.policy = Policy(roll_after_ms=1_000)
    world.send({**ORDER, **more})
    world.settle()
    found = at(world, 0)
    assert (found.due_ms, found.fires_ms) == (START_MS + 10_000, START_MS + 1_000)
