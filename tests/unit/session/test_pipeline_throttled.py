"""A broker that throttles makes transactions smaller, and costs no session."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ThrottleEvent

from proxy.publishing import kafka_transactions
from proxy.session.pipeline import Pipeline
from tests.support.simulation.stand_in import StandInProducer
from tests.support.simulation.world import World

RECORDS = 40
VALUE = bytes(10_000)
PASSED = 12
"""Records that the broker takes in one transaction before it reads no more."""
THROTTLED_S = 5


class ThrottlingBroker:
    """Takes `PASSED` records of a transaction. The others wait."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.sizes = world, list[int]()
        self.is_throttling = True
        monkeypatch.setattr(StandInProducer, "flush", self._flush_of)
        monkeypatch.setattr(kafka_transactions, "SENT_WITHIN", 0)

    @property
    def too_large(self) -> int:
        """How many transactions were more than the broker takes at once."""
        return sum(records > PASSED for records in self.sizes)

    @property
    def _flush_of(self) -> Any:
        def flush(producer: StandInProducer, _timeout: float) -> int:
            records = len(producer._sent)
            self.sizes.append(records)
            if not self.is_throttling or records <= PASSED:
                return 0
            self.world.throttling.written(ThrottleEvent("broker", 1, THROTTLED_S))
            return records - PASSED

        return flush


@pytest.fixture
def world() -> World:
    world = World(partitions=2)
    world.settle()
    return world


@pytest.fixture
def broker(world: World, monkeypatch: pytest.MonkeyPatch) -> ThrottlingBroker:
    return ThrottlingBroker(world, monkeypatch)


def send(world: World, records: int, value: bytes = VALUE, delay: str = "0s") -> None:
    asked: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": delay}
    for number in range(records):
        world.send(asked, value=value, partition=number % 2)


def pass_throttled(world: World, times: int) -> None:
    for _ in range(times):
        world.time.pass_ms(THROTTLED_S * 1_000)
        world.settle()


@pytest.mark.parametrize("delay", ["0s", "1s"])
def test_all_are_delivered_once_in_smaller_transactions_of_one_session(
    world: World, broker: ThrottlingBroker, delay: str
) -> None:
    running: Pipeline = world.pipeline
    send(world, RECORDS, delay=delay)
    world.settle()
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == [], "the first is too large"
    pass_throttled(world, 1)
    assert len(set(world.origins())) == len(world.origins()) == RECORDS
    assert world.pipeline is running, "the session goes on"
    assert broker.too_large == 1


def test_nothing_is_written_while_the_broker_throttles(
    world: World, broker: ThrottlingBroker
) -> None:
    send(world, RECORDS)
    world.settle()
    begun = len(broker.sizes)
    send(world, 2, delay="1s")
    world.time.pass_ms(THROTTLED_S * 1_000 - 1)
    world.settle()
    assert len(broker.sizes) == begun
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS + 2


def test_outcomes_alone_that_are_too_many_become_smaller_transactions_too(
    world: World, broker: ThrottlingBroker
) -> None:
    for number in range(RECORDS):
        world.send({"timer-cancel": f"id-{number}"}, value=None)
    world.settle()
    pass_throttled(world, 4)
    assert [end for _, end, _ in world.ends()] == ["missed"] * RECORDS
    assert broker.sizes[-1] <= PASSED


def test_a_record_larger_than_all_that_may_go_at_once_goes_all_the_same(
    world: World, broker: ThrottlingBroker
) -> None:
    send(world, RECORDS)
    send(world, 2, value=bytes(500_000))
    world.settle()
    pass_throttled(world, 3)
    assert len(world.origins()) == RECORDS + 2


def test_what_passes_at_once_is_known_in_the_next_session(
    world: World, broker: ThrottlingBroker
) -> None:
    send(world, RECORDS)
    world.settle()
    world.crash()
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS
    assert broker.too_large == 1


def test_a_shard_is_handed_over_without_a_word_while_the_broker_throttles(
    world: World, broker: ThrottlingBroker
) -> None:
    send(world, RECORDS)
    world.settle()
    begun = len(broker.sizes)
    world.stop()
    assert len(broker.sizes) == begun
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS


def test_transactions_are_as_large_as_before_soon_after_the_quota_is_gone(
    world: World, broker: ThrottlingBroker
) -> None:
    send(world, RECORDS)
    world.settle()
    broker.is_throttling = False
    pass_throttled(world, 1)
    for _ in range(16):
        send(world, RECORDS)
        world.settle()
        pass_throttled(world, 1)
    assert broker.sizes[-1] == RECORDS
