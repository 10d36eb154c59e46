"""A new generation of the group during a transaction: planned again, not lost."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import World

MOVED = [
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
]


@pytest.mark.parametrize("code", MOVED)
def test_transaction_of_an_older_generation_is_planned_anew_by_the_next_turn(code: int) -> None:
    world = World()
    world.send({"timer-topic": "orders", "timer-delay": "1s"})
    world.settle()
    running = world.pipeline
    world.kafka.commit_faults = [("before", kafka_error(code, txn_requires_abort=True))]
    world.time.pass_ms(1_000)

    world.turn()
    assert world.origins() == [], "nothing may be tried again before the group was heard"
    world.turn()

    assert world.origins() == ["timer.ingress/0/0"]
    assert world.pipeline is running, "the session goes on"


def test_generation_that_begins_unheard_is_asked_for_once_the_old_one_is_refused() -> None:
    world = World()
    world.send({"timer-topic": "orders"})
    world.send({"timer-topic": "orders", "timer-delay": "1s"})
    world.settle()
    running = world.pipeline
    world.kafka.generation += 1
    world.time.pass_ms(1_000)

    world.turn()
    assert world.origins() == ["timer.ingress/0/0"]
    world.turn()

    assert world.origins() == ["timer.ingress/0/0", "timer.ingress/0/1"]
    assert world.pipeline is running, "the session goes on"


@pytest.mark.parametrize("code", MOVED)
def test_shard_handed_over_in_an_older_generation_is_left_as_committed(code: int) -> None:
    world = World()
    world.settle()
    world.send({"timer-topic": "orders", "timer-delay": "1s"})
    world.kafka.commit_faults = [("before", kafka_error(code, txn_requires_abort=True))]
    world.stop()
    world.time.pass_ms(2_000)

    world.settle()

    assert world.origins() == ["timer.ingress/0/0"]
