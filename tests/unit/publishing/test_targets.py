"""Partitions that cannot be written to now: found, said once, and found again once back."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from proxy.publishing.targets import MISSING_FOR_MS, Targets
from tests.support.simulation.stand_in import StandInKafka
from tests.support.simulation.stand_in_admin import StandInAdmin

NOW_MS = 1_000_000


@pytest.fixture
def kafka() -> StandInKafka:
    return StandInKafka(topics={"orders": 2, "bills": 1}, tells_rules=True)


def targets_of(kafka: StandInKafka) -> Targets:
    return Targets(cast(Any, StandInAdmin(kafka)))


def refusals(targets: Targets, *partitions: int) -> list[str | None]:
    """Why nothing can be written to these partitions of `orders`."""
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
    """Nothing else can be done about it: another producer would wait for it, too."""
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
