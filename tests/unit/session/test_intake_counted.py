"""Read records count once per process, after any loss and repeat (on a stand-in Kafka)."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import KafkaError

from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import World

HOUR: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": "1h"}
HALF_MESSAGE: dict[str, str | bytes] = {**HOUR, "timer-id": "t", "timer-transaction": "prepare"}
INGESTED = "target_ingested_records_total"


def counted(world: World, name: str = INGESTED, **labels: str) -> float | None:
    return world.metrics.registry.get_sample_value(f"delay_proxy_{name}", labels)


def test_records_that_a_lost_session_has_read_do_not_count_again_in_the_next() -> None:
    world = World()
    world.send(HOUR)
    world.settle()
    world.kafka.commit_faults = [("before", kafka_error(KafkaError._FENCED, fatal=True))]
    world.send({"timer-topic": "orders"})
    world.send(HALF_MESSAGE)
    world.settle()
    assert counted(world, target="orders") == 3
    world.crash()
    world.send(HOUR)
    world.settle()
    assert counted(world, target="orders") == 4
    assert counted(world, "target_asked_delay_seconds_sum", target="orders") == 3 * 3_600


def test_what_another_process_has_committed_is_its_own() -> None:
    world, name = World(), "orders"
    world.send(HOUR)
    world.settle()
    successor = World()
    successor.kafka, successor.policies = world.kafka, world.policies
    successor.send(HOUR)
    successor.settle()
    assert counted(successor, target=name) == 1


def test_what_the_proxy_rewrote_is_no_producer_s_record() -> None:
    world = World()
    world.policy = replace(world.policy, roll_after_ms=60_000)
    world.send(HOUR)
    world.settle()
    world.time.pass_ms(60_000)
    world.settle()
    assert [end[1] for end in world.ends()] == ["rolled"]
    assert counted(world, target="orders") == 1


def test_the_oldest_undecided_half_message_is_the_first_that_nobody_has_decided() -> None:
    world = World()
    world.send({**HALF_MESSAGE, "timer-id": "a"})
    world.time.pass_ms(1_000)
    world.send({**HALF_MESSAGE, "timer-id": "b"})
    world.settle()
    first_ms, second_ms = (record.timestamp_ms for record in world.kafka.read("timer.ingress"))
    shard = world.shards[0]
    assert shard.half_messages.oldest_ms == first_ms
    world.send({"timer-transaction": "rollback", "timer-id": "a"})
    world.settle()
    assert shard.half_messages.oldest_ms == second_ms
    world.send({"timer-transaction": "rollback", "timer-id": "b"})
    world.settle()
    assert shard.half_messages.oldest_ms is None
