"""Many partitions on one worker: no turn of the loop takes as long as all of them together."""

from pathlib import Path

import pytest

from storage.options import Options
from tests.support.simulation.local_store import register_in, store_in
from tests.support.simulation.world import World

PARTITIONS = 5
NO_TIME_S = -1.0


def send_to_each(world: World, delay: str) -> None:
    for partition in range(PARTITIONS):
        world.send({"timer-topic": "orders", "timer-delay": delay}, partition=partition)


def test_when_planning_takes_too_long_the_shards_left_out_come_first_in_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.session.pipeline.PLAN_S", NO_TIME_S)
    world = World(PARTITIONS)
    for _ in range(2):
        send_to_each(world, "1s")
    world.settle()
    world.time.pass_ms(1_000)
    counts = []
    for _ in range(PARTITIONS):
        world.turn()
        counts.append(len(world.delivered()))
    assert counts == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("turned", range(PARTITIONS))
def test_a_shard_that_fills_each_transaction_alone_holds_up_no_other(turned: int) -> None:
    world = World(PARTITIONS, limit=2)
    world.turn(turned)
    for number in (3, 3, 3, 3, 3, 3, 0):
        world.send({"timer-topic": "orders", "timer-delay": "1s"}, partition=number)
    world.settle()
    world.time.pass_ms(1_000)
    world.turn(2)
    assert "timer.ingress/0/0" in world.origins()


def test_when_tidying_takes_too_long_each_shard_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.session.pipeline.TIDY_S", NO_TIME_S)
    opens = store_in("wheel", tmp_path, Options(memtable_entries=1, slots=8))
    world = World(PARTITIONS, opens, open_register=register_in(tmp_path))
    send_to_each(world, "1h")
    world.turn(20 * PARTITIONS)
    assert [shard.store.covered for shard in world.shards.values()] == [1] * PARTITIONS
    world.stop()
