"""The states of one transaction, and what each failure makes of it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from proxy.dispatch.release_control import ReleaseControl
from proxy.publishing.errors import GroupMoved, SessionLost
from proxy.publishing.publisher import Publisher
from proxy.publishing.targets import Targets
from proxy.publishing.transaction import FRUITLESS_ABORTS
from proxy.records.body import packer
from proxy.records.hop_mac import HopAuthenticator, HopKey
from proxy.records.message import IngressPartition
from proxy.requests.policy import RetryGroup
from proxy.scheduling.batch import Batch
from tests.support.simulation.executors import AtOnce, WhenAsked
from tests.support.simulation.stand_in import (
    INGRESS,
    StandInAdmin,
    StandInKafka,
    StandInProducer,
    kafka_error,
)

ENTRY = (1_000, 7, "orders", packer()((-1, b"key", b"value", [])))
BATCH = Batch(IngressPartition(INGRESS, 0), [ENTRY])
OFFSET = TopicPartition(INGRESS, 0, 8)
ABORTED = kafka_error(KafkaError._TIMED_OUT, txn_requires_abort=True)


@pytest.fixture
def kafka() -> StandInKafka:
    found = StandInKafka()
    found.topics = {"orders": 1}
    return found


def a_publisher(kafka: StandInKafka, commits: Any = None) -> Publisher:
    return Publisher(
        cast(Any, StandInProducer(kafka)),
        Targets(cast(Any, StandInAdmin(kafka))),
        "dead",
        "outcomes",
        lambda: None,
        commits or AtOnce(),
        RetryGroup("", (10,), 1),
        ReleaseControl(),
        HopAuthenticator(HopKey.new(), "id-1"),
    )


def test_transaction_is_committing_until_it_has_been_waited_for(kafka: StandInKafka) -> None:
    transaction = a_publisher(kafka, WhenAsked()).publish([BATCH], [OFFSET], object(), 1_000)
    assert transaction.state.value == "committing"
    assert kafka.read("orders") == []
    assert transaction.wait() == [BATCH]
    assert transaction.state.value == "committed"
    assert [record.header("timer-origin") for record in kafka.read("orders")] == [
        b"timer.ingress/0/7"
    ]
    assert kafka.committed == {0: (8, "")}


def test_transaction_waited_for_twice_is_committed_once(kafka: StandInKafka) -> None:
    transaction = a_publisher(kafka, WhenAsked()).publish([BATCH], [OFFSET], object(), 1_000)
    assert transaction.wait() == transaction.wait()
    assert len(kafka.read("orders")) == 1


def test_aborted_transaction_is_made_again_while_it_is_waited_for(kafka: StandInKafka) -> None:
    kafka.commit_faults = [("before", ABORTED)] * 3
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], object(), 1_000)
    (written,) = transaction.wait()
    assert transaction.state.value == "committed"
    assert len(written.deliveries) == len(kafka.read("orders")) == 1


def test_transaction_that_aborts_again_and_again_and_teaches_nothing_ends_the_session(
    kafka: StandInKafka,
) -> None:
    kafka.commit_faults = [("before", ABORTED)] * FRUITLESS_ABORTS
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], object(), 1_000)
    with pytest.raises(SessionLost, match=f"failed {FRUITLESS_ABORTS} times"):
        transaction.wait()
    assert transaction.state.value == "unknown"
    assert kafka.read("orders") == []


def test_transaction_of_another_generation_is_aborted_for_good(kafka: StandInKafka) -> None:
    moved = kafka_error(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
    kafka.commit_faults = [("before", moved)]
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], object(), 1_000)
    with pytest.raises(GroupMoved):
        transaction.wait()
    assert transaction.state.value == "group-moved"
    assert kafka.read("orders") == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_became_of_a_commit_without_an_answer_is_not_guessed(
    kafka: StandInKafka, when: str
) -> None:
    kafka.commit_faults = [(when, kafka_error(KafkaError._TIMED_OUT, retriable=True))]
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], object(), 1_000)
    with pytest.raises(SessionLost):
        transaction.wait()
    assert transaction.state.value == "unknown"


def test_record_too_large_for_its_topic_ends_and_the_transaction_is_committed(
    kafka: StandInKafka,
) -> None:
    kafka.max_bytes["orders"] = 4
    transaction = a_publisher(kafka).publish([BATCH], [OFFSET], object(), 1_000)
    (written,) = transaction.wait()
    assert [letter.reason.code for letter in written.dead_letters] == ["too-large"]
    assert (len(kafka.read("orders")), len(kafka.read("dead"))) == (0, 1)
