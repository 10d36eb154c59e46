"""Takeovers of shards are complete or undone, and leave nothing open."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.protocol.position import Position
from storage.errors import StorageFull
from storage.ids.register import Register
from tests.support.simulation.local_store import register_in, store_in
from tests.support.simulation.world import World


@pytest.mark.parametrize("fails", [0, 1])
def test_take_over_that_fails_half_way_closes_what_it_had_opened(
    tmp_path: Path, fails: int
) -> None:
    faults = [OSError(28, "No space left on device")]

    def open_register(partition: int, at: Position, covered: int) -> Register:
        if partition == fails and faults:
            raise StorageFull(tmp_path, faults.pop())
        return register_in(tmp_path)(partition, at, covered)

    open_store = store_in("wheel", tmp_path)
    world = World(partitions=2, open_store=open_store, open_register=open_register)
    for partition in range(2):
        world.send({"timer-topic": "orders", "timer-delay": "1s"}, partition=partition)
    with pytest.raises(StorageFull):
        world.turn()
    world.crash()
    world.settle()
    world.time.pass_ms(1_000)
    world.settle()
    assert sorted(world.origins()) == ["timer.ingress/0/0", "timer.ingress/1/0"]
    world.crash()
