"""A throttling broker makes transactions smaller, and costs no session."""

from __future__ import annotations

import pytest

from proxy.publishing import kafka_transactions
from proxy.session.pipeline import Pipeline
from tests.support.simulation.world import World

RECORDS = 40
VALUE = bytes(10_000)
PASSED = 12
"""Records that the broker takes in one transaction before it stops reading."""
THROTTLED_S = 5


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(partitions=2)
    world.settle()
    monkeypatch.setattr(kafka_transactions, "SENT_WITHIN", 0)
    world.kafka.takes_at_once, world.kafka.throttles_ms = PASSED, THROTTLED_S * 1_000
    return world


def too_large(world: World) -> int:
    return sum(records > PASSED for records in world.kafka.sizes)


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
    world: World, delay: str
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
    assert too_large(world) == 1


def test_nothing_is_written_while_the_broker_throttles(world: World) -> None:
    send(world, RECORDS)
    world.settle()
    begun = len(world.kafka.sizes)
    send(world, 2, delay="1s")
    world.time.pass_ms(THROTTLED_S * 1_000 - 1)
    world.settle()
    assert len(world.kafka.sizes) == begun
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS + 2


def test_outcomes_alone_that_are_too_many_become_smaller_transactions_too(world: World) -> None:
    for number in range(RECORDS):
        world.send({"timer-cancel": f"id-{number}"}, value=None)
    world.settle()
    pass_throttled(world, 4)
    assert [end for _, end, _ in world.ends()] == ["missed"] * RECORDS
    assert world.kafka.sizes[-1] <= PASSED


def test_a_record_larger_than_all_that_may_go_at_once_goes_all_the_same(world: World) -> None:
    send(world, RECORDS)
    send(world, 2, value=bytes(500_000))
    world.settle()
    pass_throttled(world, 3)
    assert len(world.origins()) == RECORDS + 2


def test_what_passes_at_once_is_known_in_the_next_session(world: World) -> None:
    send(world, RECORDS)
    world.settle()
    world.crash()
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS
    assert too_large(world) == 1


def test_a_shard_is_handed_over_without_a_word_while_the_broker_throttles(world: World) -> None:
    send(world, RECORDS)
    world.settle()
    begun = len(world.kafka.sizes)
    world.stop()
    assert len(world.kafka.sizes) == begun
    pass_throttled(world, 1)
    assert len(world.origins()) == RECORDS


def test_transactions_are_as_large_as_before_soon_after_the_quota_is_gone(world: World) -> None:
    send(world, RECORDS)
    world.settle()
    world.kafka.takes_at_once = None
    pass_throttled(world, 1)
    for _ in range(16):
        send(world, RECORDS)
        world.settle()
        pass_throttled(world, 1)
    assert world.kafka.sizes[-1] == RECORDS
