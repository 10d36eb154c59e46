"""Tracing gets each committed transaction once, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from proxy.scheduling.batch import Batch
from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import World


class Told:
    """Offsets of the deliveries in committed transactions."""

    def __init__(self, world: World) -> None:
        self.offsets: list[int] = []
        world.trace = self.take

    def take(self, batches: Sequence[Batch[Any]], took_s: float, now_ms: int) -> None:
        self.offsets += [record[1] for batch in batches for record in batch.deliveries]


def test_a_delivery_is_told_once_also_when_its_first_transaction_is_lost() -> None:
    world = World()
    told = Told(world)
    world.kafka.commit_faults = [("before", kafka_error(KafkaError._FENCED, fatal=True))]
    world.send({"timer-topic": "orders"})
    world.send({"timer-topic": "orders"})
    world.settle()
    assert told.offsets == [0, 1]
    assert len(world.delivered()) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_transaction_of_which_nobody_knows_whether_it_was_committed_is_not_told(
    when: str,
) -> None:
    """If it was committed, its records have no spans. Missing spans are better than wrong ones."""
    world = World()
    told = Told(world)
    world.kafka.commit_faults = [(when, kafka_error(KafkaError._FENCED, fatal=True))]
    world.send({"timer-topic": "orders"})
    world.settle()
    assert told.offsets == ([0] if when == "before" else [])
    assert len(world.delivered()) == 1
