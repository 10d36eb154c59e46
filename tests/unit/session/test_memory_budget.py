"""A worker's memory budget, in a whole proxy on the stand-in Kafka: the smallest there may be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config.memory_shares import LEAST_BYTES
from proxy.config.settings import MemorySettings
from storage.options import Options
from tests.support.simulation.local_store import store_in
from tests.support.simulation.world import World

KIB, MIB = 2**10, 2**20
SHARES = MemorySettings(per_worker_bytes=LEAST_BYTES)
TRANSACTION_BYTES, MEMTABLES_BYTES, MOST_BYTES = 4 * MIB, 16 * MIB, 24 * MIB
LARGE = bytes(256 * KIB)
IN_A_SECOND, IN_AN_HOUR = "1s", "1h"


def a_world(partitions: int, folder: Path | None = None) -> World:
    """With the least budget; on disk, where memtables would never be full by themselves."""
    options = Options(memtable_bytes=10**12, slots=8_000)
    world = World(partitions, store_in("wheel", folder, options) if folder else None)
    world.memory = SHARES
    world.batch_records = 4
    return world


def send(world: World, delay: str, each: int = 1, value: bytes = LARGE) -> None:
    """So many records to each partition."""
    for number in range(each * world.kafka.partitions):
        headers: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": delay}
        world.send(headers, value=value, partition=number % world.kafka.partitions)


def delivered_by_turn(world: World) -> Iterator[int]:
    """What each turn's transaction delivers, until all has been."""
    everything = sum(world.kafka.end(partition) for partition in range(world.kafka.partitions))
    while (before := len(world.delivered())) < everything:
        world.turn()
        yield len(world.delivered()) - before


@pytest.mark.parametrize("are_read_before", [True, False])
def test_large_records_go_out_in_transactions_of_bounded_bytes(are_read_before: bool) -> None:
    world = a_world(partitions=3)
    world.batch_records = 100
    world.settle()
    send(world, IN_A_SECOND, each=20)
    if are_read_before:
        world.settle()
    world.time.pass_ms(1_000)
    assert max(delivered_by_turn(world)) <= TRANSACTION_BYTES // len(LARGE)
    assert len(world.origins()) == len(set(world.origins())) == 60


def test_a_record_larger_than_a_transaction_comes_alone() -> None:
    world = a_world(partitions=2)
    send(world, IN_A_SECOND, each=3, value=bytes(TRANSACTION_BYTES + 1))
    world.settle()
    world.time.pass_ms(1_000)
    assert [count for count in delivered_by_turn(world) if count] == [1] * 6


def test_all_shards_together_peek_at_one_transaction_s_bodies(tmp_path: Path) -> None:
    world = a_world(8, tmp_path)
    send(world, IN_A_SECOND, each=8)
    world.settle()
    world.stop()
    world.time.pass_ms(60_000)
    for _ in delivered_by_turn(world):
        peeked = sum(shard.store.peeked_bytes for shard in world.shards.values())
        assert peeked <= TRANSACTION_BYTES + len(LARGE) + KIB
    world.stop()


def test_memtables_of_all_shards_stay_under_the_bound_while_much_is_read(tmp_path: Path) -> None:
    world = a_world(4, tmp_path)
    send(world, IN_AN_HOUR, each=100)
    most = 0
    fetched_bytes = world.batch_records * 4 * (len(LARGE) + KIB)
    for _ in range(300):
        world.turn()
        most = max(most, sum(shard.memtable_bytes for shard in world.shards.values()))
    assert [shard.next_offset for shard in world.shards.values()] == [100] * 4
    assert [shard.pending() for shard in world.shards.values()] == [100] * 4
    assert MEMTABLES_BYTES < most <= MOST_BYTES + fetched_bytes
    world.stop()


def test_what_is_due_goes_out_while_memory_is_full(tmp_path: Path) -> None:
    world = a_world(1, tmp_path)
    world.batch_records = 100
    send(world, IN_A_SECOND)
    world.settle()
    send(world, IN_AN_HOUR, each=100)
    world.turn()
    assert world.pipeline.memory.is_exceeded
    world.time.pass_ms(1_000)
    world.turn()
    assert world.origins() == ["timer.ingress/0/0"]
    world.stop()


def test_half_messages_give_their_bodies_back(tmp_path: Path) -> None:
    world = a_world(1, tmp_path)
    for number in range(100):
        world.send(
            {
                "timer-topic": "orders",
                "timer-id": str(number),
                "timer-transaction": "prepare",
                "timer-check-topic": "checks",
            },
            value=LARGE,
        )
    world.settle()
    assert world.shards[0].undecided == 100
    assert world.shards[0].memtable_bytes <= MEMTABLES_BYTES
    world.send({"timer-id": "7", "timer-transaction": "commit"})
    world.settle()
    assert [record.value() for record in world.delivered()] == [LARGE]
    world.stop()
