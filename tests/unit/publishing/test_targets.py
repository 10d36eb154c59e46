"""Unavailable partitions are found, reported once, and used again later."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from proxy.publishing.targets import (
    DOUBTED_AFTER_MS,
    KNOWN_FOR_MS,
    MISSING_FOR_MS,
    RENEWED_WITHIN_MS,
    Targets,
)
from tests.support.simulation.stand_in import StandInKafka
from tests.support.simulation.stand_in_admin import StandInAdmin

NOW_MS = 1_000_000
LATER_MS = NOW_MS + KNOWN_FOR_MS


@pytest.fixture
def kafka() -> StandInKafka:
    return StandInKafka(topics={"orders": 2, "bills": 1}, tells_rules=True)


def targets_of(kafka: StandInKafka) -> Targets:
    return Targets(cast(Any, StandInAdmin(kafka)))


def refusals(targets: Targets, *partitions: int) -> list[str | None]:
    found = [targets.known.refusal_at("orders", number, None) for number in partitions]
    return [refusal.detail if refusal else None for refusal in found]


def test_partition_without_a_leader_is_refused_and_the_others_are_not(kafka: StandInKafka) -> None:
    kafka.leaderless = {("orders", 1)}
    targets = targets_of(kafka)
    targets.learn({"orders", "bills"}, NOW_MS)
    assert refusals(targets, 0, 1) == [None, "orders/1 has no leader"]
    assert not targets.known.takes("orders")
    assert targets.known.takes("bills")


def test_partition_with_too_few_replicas_in_sync_is_refused(kafka: StandInKafka) -> None:
    kafka.short_of_replicas = {("orders", 0)}
    targets = targets_of(kafka)
    targets.learn({"orders"}, NOW_MS)
    why = "orders/0 has 1 of 2 replicas in sync, and min.insync.replicas is 2"
    assert refusals(targets, 0, 1) == [why, None]


def test_topic_whose_configuration_may_not_be_seen_is_tried(kafka: StandInKafka) -> None:
    kafka.short_of_replicas, kafka.tells_rules = {("orders", 0)}, False
    targets = targets_of(kafka)
    targets.learn({"orders"}, NOW_MS)
    assert targets.known.takes("orders")


def test_partition_that_is_back_is_found_after_five_seconds(kafka: StandInKafka) -> None:
    kafka.leaderless = {("orders", 1)}
    targets = targets_of(kafka)
    targets.learn({"orders"}, NOW_MS)
    kafka.leaderless = set()
    targets.learn({"orders"}, NOW_MS + MISSING_FOR_MS - 1)
    assert not targets.known.takes("orders")
    targets.learn({"orders"}, NOW_MS + MISSING_FOR_MS)
    assert targets.known.takes("orders")


def test_partition_lost_while_a_transaction_is_under_way_is_found_at_once(
    kafka: StandInKafka,
) -> None:
    targets = targets_of(kafka)
    targets.learn({"orders"}, NOW_MS)
    assert not targets.find_unavailable({"orders"}, NOW_MS)
    kafka.leaderless = {("orders", 1)}
    assert targets.find_unavailable({"orders"}, NOW_MS)
    assert targets.find_unavailable({"bills"}, NOW_MS), "it holds other transactions, too"
    kafka.leaderless = set()
    assert not targets.find_unavailable({"bills"}, NOW_MS)


def test_own_topic_without_a_leader_holds_everything_and_is_named(kafka: StandInKafka) -> None:
    """Nothing else helps: another producer would wait for the leader, too."""
    kafka.topics["outcomes"], kafka.leaderless = 1, {("outcomes", 0)}
    targets = targets_of(kafka)
    with capture_logs() as said:
        assert not targets.find_unavailable({"outcomes"}, NOW_MS)
    assert [(line["topic"], line["why"]) for line in said] == [("outcomes", "has no leader")]


def test_each_partition_is_said_once_until_it_is_back(kafka: StandInKafka) -> None:
    kafka.leaderless = {("orders", 0), ("orders", 1)}
    targets = targets_of(kafka)
    with capture_logs() as said:
        for turn in range(3):
            targets.learn({"orders"}, NOW_MS + turn * MISSING_FOR_MS)
        kafka.leaderless = {("orders", 1)}
        targets.learn({"orders"}, NOW_MS + 3 * MISSING_FOR_MS)
    assert [(line["event"], line.get("partition")) for line in said] == [
        ("partition unavailable", 0),
        ("partition unavailable", 1),
        ("partitions available again", None),
    ]


def test_topic_with_thousands_of_lost_partitions_does_not_flood_the_log(
    kafka: StandInKafka,
) -> None:
    kafka.topics["orders"], kafka.leaderless = 5_000, {("orders", n) for n in range(5_000)}
    with capture_logs() as said:
        targets_of(kafka).learn({"orders"}, NOW_MS)
    assert len(said) <= 21
    assert said[-1]["partitions"] == 5_000 - 20


class SlowAdmin(StandInAdmin):
    """Admin client whose answers the test releases."""

    def __init__(self, kafka: StandInKafka) -> None:
        super().__init__(kafka)
        self.asked: list[dict[str, Future[Any]]] = []
        self.is_slow = False

    def describe_topics(self, asked: Any, **_: object) -> dict[str, Future[Any]]:
        if not self.is_slow:
            return super().describe_topics(asked)
        self.asked.append({name: Future() for name in asked.topic_names})
        return self.asked[-1]

    def answer(self) -> None:
        for name, future in self.asked[-1].items():
            future.set_result(self._describe(name).result())


@pytest.fixture
def slow(kafka: StandInKafka) -> tuple[SlowAdmin, Targets]:
    admin = SlowAdmin(kafka)
    targets = Targets(cast(Any, admin))
    targets.learn({"orders"}, NOW_MS)
    admin.is_slow = True
    return admin, targets


def test_what_is_known_is_renewed_without_waiting_and_asked_for_once(
    kafka: StandInKafka, slow: tuple[SlowAdmin, Targets]
) -> None:
    admin, targets = slow
    kafka.topics["orders"] = 5
    for later_ms in range(3):
        targets.learn({"orders"}, LATER_MS + later_ms)
        assert targets.known.partitions["orders"] == 2
    assert len(admin.asked) == 1
    admin.answer()
    targets.learn({"orders"}, LATER_MS + 3)
    assert targets.known.partitions["orders"] == 5
    targets.learn({"orders"}, LATER_MS + 3 + KNOWN_FOR_MS)
    assert len(admin.asked) == 2


def test_an_answer_of_before_the_broker_contradicted_it_does_not_count(
    kafka: StandInKafka, slow: tuple[SlowAdmin, Targets]
) -> None:
    admin, targets = slow
    targets.learn({"orders"}, LATER_MS)
    admin.answer()
    targets.forget({"orders"})
    kafka.topics["orders"], admin.is_slow = 7, False
    targets.learn({"orders"}, LATER_MS + 1)
    assert targets.known.partitions["orders"] == 7


def test_where_no_answer_comes_the_broker_is_asked_and_waited_for(
    kafka: StandInKafka, slow: tuple[SlowAdmin, Targets]
) -> None:
    admin, targets = slow
    targets.learn({"orders"}, LATER_MS)
    admin.asked[-1]["orders"].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    kafka.topics["orders"], admin.is_slow = 3, False
    targets.learn({"orders"}, LATER_MS + RENEWED_WITHIN_MS)
    assert targets.known.partitions["orders"] == 3


def test_what_is_doubted_is_asked_again_unless_that_was_a_moment_ago(kafka: StandInKafka) -> None:
    targets = targets_of(kafka)
    targets.learn({"orders"}, NOW_MS)
    kafka.topics["orders"] = 5
    assert not targets.ask_again({"orders"}, NOW_MS + DOUBTED_AFTER_MS - 1)
    assert targets.known.partitions["orders"] == 2
    assert targets.ask_again({"orders"}, NOW_MS + DOUBTED_AFTER_MS)
    assert targets.known.partitions["orders"] == 5
    assert not targets.ask_again({"orders"}, NOW_MS + DOUBTED_AFTER_MS + 1)


def test_a_renewed_answer_may_be_older_than_it_was_found(
    kafka: StandInKafka, slow: tuple[SlowAdmin, Targets]
) -> None:
    admin, targets = slow
    targets.learn({"orders"}, LATER_MS)
    admin.answer()
    kafka.topics["orders"], admin.is_slow = 5, False
    targets.learn({"orders"}, LATER_MS + RENEWED_WITHIN_MS - 1)
    assert targets.ask_again({"orders"}, LATER_MS + RENEWED_WITHIN_MS)
    assert targets.known.partitions["orders"] == 5
