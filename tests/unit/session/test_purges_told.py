"""Messages of a purge: a log line at the start, one at the end, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from structlog.testing import capture_logs

from proxy.scheduling import purges as sweep
from proxy.session.pacing import IDLE_COMMIT_MS
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import World

TURNS = 20
TAKEN_IN = "purge read: pending records for these targets will not be delivered"


def about_purges(said: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int | None]]:
    return [
        (one["event"].split(":")[0], one["purge"], one.get("records"))
        for one in said
        if "purge" in one
    ]


def count(world: World, name: str, **labels: str) -> float | None:
    return world.metrics.registry.get_sample_value(f"delay_proxy_{name}", labels)


def purged(waiting: int, *patterns: str) -> World:
    world = World(limit=10)
    for _ in range(waiting):
        world.send({"timer-topic": "orders", "timer-delay": "1h"})
    for pattern in patterns:
        world.purge(pattern)
    return world


def finish(world: World) -> None:
    world.settle()
    for _ in range(TURNS):
        if world.positions()[0].purge is not None:
            world.time.pass_ms(IDLE_COMMIT_MS)
            world.settle()


def test_a_purge_is_logged_with_what_it_asks_for_and_when_all_of_it_has_ended() -> None:
    world = purged(2)
    world.purge("ord*", START_MS, START_MS + 9_000_000)
    with capture_logs() as said:
        finish(world)
    taken_in = next(one for one in said if one["event"] == TAKEN_IN)
    asked = {name: taken_in[name] for name in ("purge", "targets", "due_from", "due_to")}
    assert asked == {
        "purge": f"{INGRESS}/0/2",
        "targets": "ord*",
        "due_from": START_MS,
        "due_to": START_MS + 9_000_000,
    }
    origin = f"{INGRESS}/0/2"
    assert about_purges(said) == [("purge read", origin, None), ("purge done", origin, 2)]


def test_a_purge_without_times_is_logged_without() -> None:
    with capture_logs() as said:
        finish(purged(0, "orders"))
    taken_in = next(one for one in said if one["event"] == TAKEN_IN)
    assert (taken_in["due_from"], taken_in["due_to"]) == (None, None)


def test_one_that_ends_nothing_is_done_all_the_same_and_each_counts_once() -> None:
    world = purged(3, "orders", "orders", "nobody")
    with capture_logs() as said:
        finish(world)
    done = [one[1:] for one in about_purges(said) if one[0] == "purge done"]
    assert done == [(f"{INGRESS}/0/3", 3), (f"{INGRESS}/0/4", 0), (f"{INGRESS}/0/5", 0)]
    assert count(world, "purges_total", state="taken-in") == 3
    assert count(world, "purges_total", state="done") == 3
    assert count(world, "purged_records_total") == 3


def test_a_purge_that_is_taken_over_half_way_is_told_once_and_its_records_counted_once() -> None:
    world = purged(2 * sweep.LOOKED_AT, "orders")
    with capture_logs() as said:
        for _ in range(TURNS):
            if not count(world, "purged_records_total"):
                world.turn()
        assert count(world, "purges_total", state="done") == 0
        world.crash()
        finish(world)
    origin = f"{INGRESS}/0/{2 * sweep.LOOKED_AT}"
    assert about_purges(said) == [("purge read", origin, None), ("purge done", origin, None)]
    assert count(world, "purged_records_total") == 2 * sweep.LOOKED_AT


def test_both_metrics_are_there_at_zero_before_any_purge() -> None:
    world = World()
    assert count(world, "purges_total", state="taken-in") == 0
    assert count(world, "purges_total", state="done") == 0
    assert count(world, "purged_records_total") == 0
