"""A whole proxy with the smallest memory budget, on the stand-in Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config.machine import LEAST_BYTES
from proxy.config.settings import MemorySettings
from proxy.kafka.ingress import Fetched
from proxy.scheduling.half_messages import CHECK_BACK_BYTES
from storage.ids.register import open_register
from storage.options import Options
from storage.store import Committed
from tests.support.simulation.local_store import store_in
from tests.support.simulation.world import World

KIB, MIB = 2**10, 2**20
SHARES = MemorySettings(per_worker_bytes=LEAST_BYTES)
TRANSACTION_BYTES, MEMTABLES_BYTES, MOST_BYTES = 4 * MIB, 16 * MIB, 24 * MIB
LARGE = bytes(256 * KIB)
AT_ONCE, IN_A_SECOND, IN_AN_HOUR = "0s", "1s", "1h"
PATIENCE = 300


def a_world(partitions: int, folder: Path | None = None) -> World:
    """Return a world on disk with the smallest budget. Memtables are never full by themselves."""
    options = Options(memtable_bytes=10**12, slots=8_000)
    world = World(partitions, store_in("wheel", folder, options) if folder else None)
    world.memory = SHARES
    world.batch_records = 4
    return world


def send(world: World, delay: str, each: int = 1, value: bytes = LARGE) -> None:
    for number in range(each * world.kafka.partitions):
        headers: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": delay}
        world.send(headers, value=value, partition=number % world.kafka.partitions)


def a_half_message(number: int) -> dict[str, str | bytes]:
    return {
        "timer-topic": "orders",
        "timer-id": str(number),
        "timer-transaction": "prepare",
        "timer-check-topic": "checks",
    }


def delivered_by_turn(world: World) -> Iterator[int]:
    everything = sum(world.kafka.end(partition) for partition in range(world.kafka.partitions))
    for _ in range(PATIENCE):
        before = len(world.delivered())
        if before == everything:
            return
        world.turn()
        yield len(world.delivered()) - before
    raise AssertionError(f"{before} of {everything} delivered")


@pytest.mark.parametrize("delay", [AT_ONCE, IN_A_SECOND])
def test_large_records_go_out_in_transactions_of_bounded_bytes(delay: str, tmp_path: Path) -> None:
    world = a_world(3, tmp_path)
    world.batch_records = 100
    world.settle()
    send(world, delay, each=20)
    if delay == IN_A_SECOND:
        world.settle()
        world.time.pass_ms(1_000)
    assert max(delivered_by_turn(world)) <= TRANSACTION_BYTES // len(LARGE)
    assert len(world.origins()) == len(set(world.origins())) == 60
    world.stop()


def test_a_record_larger_than_a_transaction_comes_alone() -> None:
    world = a_world(partitions=2)
    send(world, IN_A_SECOND, each=3, value=bytes(TRANSACTION_BYTES + 1))
    world.settle()
    world.time.pass_ms(1_000)
    assert [count for count in delivered_by_turn(world) if count] == [1] * 6


def test_all_shards_together_peek_at_one_transaction_s_bodies(tmp_path: Path) -> None:
    """None of their plans is published."""
    world = a_world(8, tmp_path)
    send(world, IN_A_SECOND, each=20)
    world.settle()
    world.stop()
    world.settle()
    world.time.pass_ms(60_000)
    peeked = []
    world.pipeline._wake(Fetched(), world.clock.moment())
    for _ in world.shards:
        world.pipeline._put(Fetched(), world.clock.moment())
        world.pipeline._due(world.clock.moment(), records_available=1_000)
        peeked.append(sum(shard.store.peeked_bytes for shard in world.shards.values()))
    assert TRANSACTION_BYTES - len(LARGE) <= max(peeked) <= TRANSACTION_BYTES + len(LARGE) + KIB
    assert sum(delivered_by_turn(world)) == 160
    world.stop()


def test_large_records_of_many_partitions_go_out_of_rocksdb(tmp_path: Path) -> None:
    """Asking for the next due entry reads a body, too."""
    world = World(12, store_in("rocksdb", tmp_path, Options()))
    world.memory = SHARES
    at_ms = world.time.wall_now_ms + 60_000
    for partition in range(12):
        headers: dict[str, str | bytes] = {"timer-topic": "orders", "timer-deliver-at": str(at_ms)}
        world.send(headers, value=bytes(MIB), partition=partition)
    world.settle()
    world.stop()
    world.settle()
    for _ in range(60_000 // 125):
        world.time.pass_ms(125)
        world.turn()
    world.settle()
    assert len(world.delivered()) == 12
    world.stop()


def test_memtables_of_all_shards_stay_under_the_bound_while_much_is_read(tmp_path: Path) -> None:
    world = a_world(4, tmp_path)
    send(world, IN_AN_HOUR, each=100)
    most = 0
    fetched_bytes = world.batch_records * 4 * (len(LARGE) + KIB)
    for _ in range(PATIENCE):
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
        world.send(a_half_message(number), value=LARGE)
    world.settle()
    assert len(world.shards[0].half_messages) == 100
    assert world.shards[0].memtable_bytes <= MEMTABLES_BYTES
    world.send({"timer-id": "7", "timer-transaction": "commit"})
    world.settle()
    assert [record.value() for record in world.delivered()] == [LARGE]
    world.stop()


def test_questions_about_half_messages_of_all_shards_have_one_bound_together() -> None:
    world = a_world(partitions=4)
    world.kafka.topics["checks"] = 1
    for number in range(160):
        world.send(a_half_message(number), value=LARGE, partition=number % 4)
    world.settle()
    world.time.pass_ms(6_000)
    counts = [0]
    for _ in range(20):
        world.turn()
        world.time.pass_ms(50)
        counts.append(len(world.delivered("checks")))
        assert counts[-1] - counts[-2] <= CHECK_BACK_BYTES // len(LARGE) + 1
    assert counts[-1] == 160


def test_ids_of_which_nothing_waits_are_written_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be on disk only once the store, which has nothing to write, has covered them."""
    monkeypatch.setattr("proxy.config.machine.LEAST_BYTES", 0)
    world = a_world(2, tmp_path)
    world.open_register = lambda number, at, covered: open_register(
        tmp_path / f"ids-{number}",
        Committed(at.watermark_ms, at.cursor, at.floor, covered),
    )
    world.memory = MemorySettings(per_worker_bytes=160 * KIB)
    for number in range(1_000):
        world.send({"timer-cancel": f"id {number}"}, partition=number % 2)
    world.turn(2 * PATIENCE)
    assert [shard.next_offset for shard in world.shards.values()] == [500, 500]
    assert sum(shard.memtable_bytes for shard in world.shards.values()) <= 60 * KIB
    world.stop()
