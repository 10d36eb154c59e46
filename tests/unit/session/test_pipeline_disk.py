"""A full disk in a whole proxy on the stand-in Kafka: reading pauses, delivery continues."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pytest

from storage.errors import StorageFull
from tests.support.simulation.memory_store import MemoryStore
from tests.support.simulation.world import DISK_BYTES, World


class Stores(MemoryStore):
    """Stores of the test, which decides whether they are writable."""

    is_full = False

    def maintain(self, next_offset: int, budget_entries: int) -> bool:
        if self.is_full:
            raise StorageFull(Path("shard"), OSError(ENOSPC, "No space left on device"))
        return False


def send(world: World, delay: str) -> None:
    world.send({"timer-topic": "orders", "timer-delay": delay})


def pass_seconds(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.time.pass_ms(1_000)
        world.settle()


def read(world: World) -> int:
    (shard,) = world.shards.values()
    return shard.next_offset


def test_below_the_reserve_what_is_due_goes_out_and_nothing_new_is_read() -> None:
    world = World()
    send(world, "3s")
    world.settle()
    world.disk_free_bytes = 0
    pass_seconds(world, 2)
    held = [world.pipeline.back_pressure.is_disk_full]
    send(world, "1s")
    send(world, "0")
    pass_seconds(world, 10)
    assert (read(world), world.origins()) == (1, ["timer.ingress/0/0"])
    world.disk_free_bytes = DISK_BYTES
    pass_seconds(world, 2)
    held.append(world.pipeline.back_pressure.is_disk_full)
    assert (held, read(world), len(world.origins())) == ([True, False], 3, 3)


def test_a_restart_below_the_reserve_catches_up_and_delivers_before_it_holds() -> None:
    world = World()
    send(world, "3s")
    world.settle()
    world.crash()
    world.disk_free_bytes, world.batch_records = 0, 1
    for _ in range(5):
        send(world, "3s")
    world.settle()
    send(world, "3s")
    pass_seconds(world, 10)
    assert (read(world), len(world.origins())) == (6, 6)
    assert world.pipeline.back_pressure.is_disk_full


def test_a_worker_that_has_given_all_away_sees_the_disk_fill_and_empty() -> None:
    world = World()
    world.settle()
    world.pipeline.hand_over([0])
    held = []
    for world.disk_free_bytes in (0, DISK_BYTES):
        pass_seconds(world, 2)
        held.append(world.pipeline.back_pressure.is_disk_full)
    assert held == [True, False]


def test_a_full_disk_is_not_mended_by_shards_that_have_nothing_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.session.pipeline.TIDY_S", -1.0)
    stores = {0: Stores(), 1: Stores()}
    world = World(2, open_store=lambda partition, _at: stores[partition])
    world.settle()
    stores[1].is_full = True
    for partition in range(2):
        world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=partition)
    world.turn(4)
    held = []
    for _ in range(10):
        world.time.pass_ms(1_000)
        world.turn()
        held.append(world.pipeline.back_pressure.is_disk_full)
    assert all(held)


def test_reading_goes_on_once_a_full_disk_can_be_written_again() -> None:
    store = Stores()
    world = World(open_store=lambda _partition, _at: store)
    world.settle()
    store.is_full = True
    pass_seconds(world, 2)
    send(world, "0")
    pass_seconds(world, 3)
    store.is_full = False
    pass_seconds(world, 3)
    send(world, "0")
    pass_seconds(world, 3)
    assert not world.pipeline.back_pressure.is_disk_full
    assert len(world.origins()) == 2
