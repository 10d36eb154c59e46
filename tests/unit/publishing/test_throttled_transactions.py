"""Transactions that a quota blocks are given up and repeated with fewer records."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, ThrottleEvent, TopicPartition

from proxy.publishing.failures import GroupMoved, SessionLost, Throttled
from proxy.publishing.throttling import Throttling
from tests.support.simulation.stand_in import StandInKafka, StandInProducer, kafka_error
from tests.unit.publishing.test_transaction import (
    BATCH,
    GENERATION,
    OFFSET,
    a_publisher,
    assert_given_up,
)

MINUTE = ThrottleEvent("broker", 1, 60)
TIMED_OUT = kafka_error(KafkaError._TIMED_OUT, retriable=True)


class Muted(StandInProducer):
    """Broker that answers the first records and reads no more. A poll returns the throttle time."""

    def __init__(self, kafka: StandInKafka, throttling: Throttling) -> None:
        super().__init__(kafka)
        self._throttling = throttling

    def flush(self, timeout: float) -> int:
        self._throttling.written(MINUTE)
        return 1

    def poll(self, timeout: float) -> int:
        self._throttling.written(MINUTE)
        return 0


class OffsetsHeldUp(Muted):
    """Group coordinator that also leads a target."""

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None:
        raise TIMED_OUT


class Noting(StandInProducer):
    """Producer that notes the order of its calls."""

    def __init__(self, kafka: StandInKafka) -> None:
        super().__init__(kafka)
        self.calls: list[str] = []

    def produce(self, *args: Any, **more: Any) -> None:
        self.calls.append("record")
        super().produce(*args, **more)

    def send_offsets_to_transaction(self, *args: Any) -> None:
        self.calls.append("offsets")
        super().send_offsets_to_transaction(*args)


@pytest.fixture
def kafka() -> StandInKafka:
    found = StandInKafka()
    found.topics = {"orders": 1}
    return found


@pytest.mark.parametrize("kind", [Muted, OffsetsHeldUp])
def test_it_is_given_up_and_the_next_producer_goes_on(
    kafka: StandInKafka, kind: type[Muted]
) -> None:
    throttling, made = Throttling(), list[int]()

    def new_producer(number: int) -> Any:
        made.append(number)
        return kind(kafka, throttling) if len(made) == 1 else StandInProducer(kafka)

    publisher = a_publisher(kafka, new_producer=new_producer, timeout_s=0.05, throttling=throttling)
    transaction = publisher.publish([BATCH], [OFFSET], GENERATION, 1_000)
    with pytest.raises(Throttled):
        transaction.wait()
    assert_given_up(transaction, Throttled)
    assert (made, kafka.read("orders"), kafka.committed) == ([0, 0], [], {})
    publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert len(kafka.read("orders")) == 1


def test_offsets_that_nothing_holds_up_and_nobody_answers_end_the_session(
    kafka: StandInKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OffsetsHeldUp, "poll", lambda _self, _timeout: 0)
    publisher = a_publisher(kafka, new_producer=lambda _n: OffsetsHeldUp(kafka, Throttling()))
    with pytest.raises(SessionLost):
        publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()


@pytest.mark.parametrize("is_throttled", [False, True])
def test_where_the_broker_throttles_offsets_do_not_wait_behind_records(
    kafka: StandInKafka, is_throttled: bool
) -> None:
    throttling, producer = Throttling(), Noting(kafka)
    if is_throttled:
        throttling.written(ThrottleEvent("broker", 1, 0.001))
    publisher = a_publisher(kafka, new_producer=lambda _n: producer, throttling=throttling)
    publisher.publish([BATCH], [OFFSET], GENERATION, 1_000).wait()
    assert producer.calls == (["offsets", "record"] if is_throttled else ["record", "offsets"])
    assert kafka.committed == {0: (8, "")}


def test_group_that_has_moved_is_noticed_by_offsets_that_go_first(kafka: StandInKafka) -> None:
    throttling = Throttling()
    throttling.written(ThrottleEvent("broker", 1, 0.001))
    kafka.generation += 1
    transaction = a_publisher(kafka, throttling=throttling).publish(
        [BATCH], [OFFSET], GENERATION, 1_000
    )
    with pytest.raises(GroupMoved):
        transaction.wait()
    assert_given_up(transaction, GroupMoved)
    assert kafka.read("orders") == []
