"""Progress is committed soon despite other shards and clock steps, on the stand-in Kafka."""

from __future__ import annotations

import pytest

from proxy.config.settings import ReleaseSettings
from proxy.dispatch.release_control import WorkerRateLimit
from proxy.session.pacing import IDLE_COMMIT_MS, LATEST_PROGRESS_MS
from tests.support.simulation.world import World

INTERVAL_MS = ReleaseSettings().transaction_interval_ms
TEN_MINUTES_MS = 600_000


def send(world: World, delay: str, partition: int = 0) -> None:
    world.send({"timer-topic": "orders", "timer-delay": delay}, partition=partition)


def pass_by(world: World, times: int, step_ms: int, delay: str = "0s") -> None:
    for _ in range(times):
        send(world, delay, partition=1)
        world.time.pass_ms(step_ms)
        world.turn(2)


def test_the_watermark_of_an_idle_shard_is_committed_while_another_delivers() -> None:
    world = World(partitions=2)
    send(world, "0s")
    world.settle()
    for _ in range(6):
        pass_by(world, 5, step_ms=5_000)
        position = world.shards[0].position
        behind_ms = world.clock.now_ms() - position.watermark.fires_ms
        assert behind_ms <= IDLE_COMMIT_MS + 5_000
        assert position.floor == 1


def test_a_finished_purge_is_committed_while_another_shard_delivers() -> None:
    world = World(partitions=2)
    for _ in range(3):
        send(world, "1h")
    world.settle()
    world.purge("orders")
    pass_by(world, 30, step_ms=1_000)
    assert world.shards[0].position.purge is None
    assert [what for _, what, _ in world.ends()].count("cancelled") == 3


def test_what_was_read_is_committed_while_another_shard_delivers_all_the_time() -> None:
    world = World(partitions=2)
    world.interval_ms = INTERVAL_MS
    world.settle()
    send(world, "1h")
    pass_by(world, INTERVAL_MS // 25, step_ms=25)
    assert world.shards[0].position.next_offset == 0
    pass_by(world, LATEST_PROGRESS_MS // 25, step_ms=25)
    assert world.shards[0].position.next_offset == 1


@pytest.mark.parametrize(("partitions", "per_second"), [(2, 10), (4, 5), (4, 10), (3, 7)])
def test_a_low_rate_is_shared_by_all_shards_that_have_a_backlog(
    partitions: int, per_second: int
) -> None:
    world = World(partitions)
    world.cap = WorkerRateLimit(per_second)
    for number in range(40 * partitions):
        send(world, "1s", partition=number % partitions)
    world.settle()
    world.time.pass_ms(1_000)
    while len(world.delivered()) < 10 * partitions:
        world.time.pass_ms(50)
        world.turn()
    origins = world.origins()
    counts = [sum(f"/{p}/" in origin for origin in origins) for p in range(partitions)]
    assert max(counts) - min(counts) <= 3


def test_a_wall_clock_set_back_holds_up_deliveries_alone() -> None:
    world = World()
    world.interval_ms = INTERVAL_MS
    for _ in range(40):
        send(world, "0s")
    world.settle()
    world.time.step_ms(-TEN_MINUTES_MS)
    for _ in range(3):
        send(world, "1h")
    world.send({"timer-recall": "timer.ingress/0/40"})
    for _ in range(10):
        world.time.pass_ms(INTERVAL_MS)
        world.turn()
    assert world.shards[0].position.next_offset == 44
    assert ("timer.ingress/0/40", "cancelled", "recalled") in world.ends()
    world.disk_free_bytes = 1_000
    world.time.pass_ms(1_000)
    world.turn()
    assert world.pipeline.back_pressure.is_disk_full
