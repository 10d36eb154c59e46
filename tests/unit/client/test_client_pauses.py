"""Paused and resumed partitions of a consumer, with few calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from kafka_delay.consumer_loop import Pauses


class Consumer:
    def __init__(self) -> None:
        self.assigned = [0, 1, 2]
        self.told: list[str] = []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", number) for number in self.assigned]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(f"pause {sorted(one.partition for one in partitions)}")

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(f"resume {sorted(one.partition for one in partitions)}")


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def pauses(consumer: Consumer) -> Pauses:
    return Pauses(cast(Any, consumer))


def orders(*numbers: int) -> set[tuple[str, int]]:
    return {("orders", number) for number in numbers}


def test_nothing_is_said_as_long_as_everything_may_be_read(
    consumer: Consumer, pauses: Pauses
) -> None:
    pauses.pause_only(set())
    assert consumer.told == []


def test_only_what_changes_is_said(consumer: Consumer, pauses: Pauses) -> None:
    pauses.pause_only(orders(0, 1))
    pauses.pause_only(orders(0, 1))
    pauses.pause_only(orders(1, 2))
    pauses.pause_only(set())
    assert consumer.told == ["pause [0, 1]", "pause [2]", "resume [0]", "resume [1, 2]"]


def test_all_means_partitions_too_that_have_come_since(consumer: Consumer, pauses: Pauses) -> None:
    pauses.pause_all()
    consumer.assigned.append(3)
    pauses.pause_all()
    was_all = pauses.is_all
    pauses.pause_only(orders(0))
    assert (was_all, pauses.is_all) == (True, False)
    assert consumer.told == ["pause [0, 1, 2]", "pause [3]", "resume [1, 2, 3]"]


def test_a_partition_that_is_not_ours_is_not_paused(consumer: Consumer, pauses: Pauses) -> None:
    pauses.pause_only(orders(7))
    assert consumer.told == []


def test_a_partition_that_goes_is_resumed_for_when_it_comes_back(
    consumer: Consumer, pauses: Pauses
) -> None:
    pauses.pause_all()
    pauses.forget(orders(1))
    consumer.assigned = [0, 2]
    pauses.pause_only(set())
    assert consumer.told == ["pause [0, 1, 2]", "resume [1]", "resume [0, 2]"]
