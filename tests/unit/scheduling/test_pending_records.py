"""Pending records of a shard, as people see them."""

import pytest

from proxy.protocol.position import NEVER_MS
from proxy.scheduling import pending as waiting_records
from proxy.scheduling.pending import END, PendingRecord, Sought, scan_pending
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.world import World


def waiting(world: World, sought: Sought | None = None) -> list[PendingRecord]:
    found: list[PendingRecord] = []
    after = (-1, -1)
    while after < END:
        piece = scan_pending(world.shards[0], sought or Sought(), after)
        assert piece.upto > after
        found, after = found + piece.records, piece.upto
    return found


def ask(delay: str, ident: str, target: str = "orders", **more: str) -> dict[str, str]:
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    return {"timer-topic": target, "timer-delay": delay, "timer-id": ident, **headers}


def a_world(*requests: dict[str, str]) -> World:
    world = World(partitions=1)
    for request in requests:
        world.send({**request})
    world.settle()
    return world


def test_records_are_shown_in_the_order_of_firing_and_half_messages_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_records, "LOOKED_AT", 1)
    world = a_world(
        ask("9s", "late"),
        ask("1s", "half", timer_transaction="prepare"),
        ask("2s", "half too", timer_transaction="prepare"),
        ask("5s", "soon"),
    )
    found = waiting(world)
    assert [(one.ident, one.why, one.due_ms - START_MS) for one in found] == [
        (b"soon", "scheduled", 5_000),
        (b"late", "scheduled", 9_000),
        (b"half", "undecided", 1_000),
        (b"half too", "undecided", 2_000),
    ]
    assert found[0].origin == "timer.ingress/0/3"
    assert found[2].fires_ms == NEVER_MS


def test_what_was_cancelled_or_replaced_is_not_shown() -> None:
    world = a_world(
        ask("9s", "a"), ask("9s", "b"), {"timer-cancel": "a"}, ask("8s", "b"), ask("7s", "c")
    )
    assert [one.origin for one in waiting(world)] == ["timer.ingress/0/4", "timer.ingress/0/3"]


def test_filters_leave_out_what_is_not_asked_for() -> None:
    world = a_world(
        ask("1s", "a1", "orders"),
        ask("2s", "b1", "orders"),
        ask("3s", "a2", "bills"),
        ask("4s", "a3", "bills", timer_transaction="prepare"),
    )

    def idents(sought: Sought) -> list[bytes | None]:
        return [one.ident for one in waiting(world, sought)]

    assert idents(Sought(pattern="bi*")) == [b"a2", b"a3"]
    assert idents(Sought(ident_prefix=b"a")) == [b"a1", b"a2", b"a3"]
    assert idents(Sought(until_ms=START_MS + 2_000)) == [b"a1", b"b1"]
    half = scan_pending(world.shards[0], Sought(from_ms=START_MS + 4_001), (NEVER_MS, -1))
    assert half.records == []


def test_what_its_target_does_not_take_now_is_held_back() -> None:
    world = a_world(ask("1s", "a"), ask("9s", "b"))
    world.release.pause(["orders"])
    world.time.pass_ms(1_500)
    world.turn(10)
    later, paused = waiting(world)
    assert (later.ident, later.why) == (b"b", "scheduled")
    assert (paused.ident, paused.why, paused.due_ms) == (b"a", "paused", START_MS + 1_000)
    assert paused.fires_ms > START_MS + 9_000


def test_a_committed_half_message_is_named_by_its_own_origin() -> None:
    world = a_world(
        ask("9s", "half", timer_transaction="prepare"),
        {"timer-transaction": "commit", "timer-id": "half"},
    )
    (found,) = waiting(world)
    assert (found.origin, found.why, found.due_ms) == (
        "timer.ingress/0/0",
        "scheduled",
        START_MS + 9_000,
    )
