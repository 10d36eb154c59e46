"""Writes during a shard's run, so that little is read again after a SIGKILL."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proxy.scheduling import shard as shard_module
from proxy.scheduling.shard import FLUSH_EVERY_MS, Shard
from storage.ids.register import open_register
from storage.options import Options
from storage.store import Committed
from tests.support.simulation.local_store import store_in
from tests.support.simulation.world import World

RECORDS = 200
WORTH = 20


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(shard_module, "WORTH_A_FLUSH", WORTH)
    monkeypatch.setattr(shard_module, "FLUSHED_AT_ONCE", WORTH)
    made = World(1, store_in("wheel", tmp_path, Options(slots=8_000)))
    made.open_register = lambda partition, at, covered: open_register(
        tmp_path / str(partition) / "ids",
        Committed(at.watermark_ms, at.cursor, at.floor, covered),
    )
    made.batch_records = 4
    return made


def send(world: World, with_ids: bool) -> None:
    for number in range(RECORDS):
        named: dict[str, str | bytes] = {"timer-id": f"id-{number}"} if with_ids else {}
        world.send({"timer-topic": "orders", "timer-delay": "1h", **named})


def the_shard(world: World) -> Shard:
    return next(iter(world.shards.values()))


@pytest.mark.parametrize("with_ids", [False, True])
def test_a_shard_that_is_killed_again_and_again_gets_to_its_end(
    world: World, tmp_path: Path, *, with_ids: bool
) -> None:
    """Each life reads 60 of 200 records at most. All local state was lost before the first."""
    send(world, with_ids)
    world.settle()
    world.crash()
    shutil.rmtree(tmp_path / "0")
    for _ in range(10):
        world.turn(15)
        if the_shard(world).next_offset == RECORDS:
            break
        world.crash()
    assert the_shard(world).next_offset == RECORDS
    assert the_shard(world).pending() == RECORDS
    world.stop()


@pytest.mark.parametrize("with_ids", [False, True])
def test_what_has_come_is_written_now_and_then(world: World, *, with_ids: bool) -> None:
    send(world, with_ids)
    world.settle()
    world.time.pass_ms(FLUSH_EVERY_MS)
    world.settle()
    world.turn(3)
    world.crash()
    world.turn()
    assert the_shard(world).next_offset >= RECORDS - WORTH
    world.stop()
