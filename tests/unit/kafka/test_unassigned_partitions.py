"""Partitions that the group has left to nobody are seen, and one member acts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from proxy.kafka.unassigned_partitions import LOOK_EVERY_S, UnassignedPartitions

TOPIC = "timer.ingress"


class Group:
    """Stands for the admin client: describes a group of members by instance id."""

    def __init__(self, owned: dict[str, Sequence[int]]) -> None:
        self.owned = owned
        self.state = ConsumerGroupState.STABLE
        self.is_reachable = True
        self.coordinator_known_to = 1
        self.clients = self.asked = 0

    def new_client(self) -> Any:
        """Only the client of this number, and later ones, know the coordinator."""
        self.clients += 1
        return self

    def describe_consumer_groups(self, groups: list[str]) -> dict[str, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.clients < self.coordinator_known_to:
            answer.set_exception(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)))
        elif self.is_reachable:
            answer.set_result(SimpleNamespace(state=self.state, members=self._members()))
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        return dict.fromkeys(groups, answer)

    def _members(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                group_instance_id=name,
                assignment=SimpleNamespace(
                    topic_partitions=[TopicPartition(TOPIC, number) for number in numbers]
                ),
            )
            for name, numbers in self.owned.items()
        ]


class Watch:
    """A watch over partitions 0 to 3 with a clock of its own; counts the rebalances."""

    def __init__(self, group: Group, instance: str = "a-0") -> None:
        self.rebalances = 0
        self._now_s = 0.0
        places = {(TOPIC, number) for number in range(4)}
        self._watch = UnassignedPartitions(
            group.new_client, "g", places, instance, self._rebalance, lambda: self._now_s
        )

    def look(self, times: int) -> None:
        """So many questions and their answers."""
        for _ in range(times):
            self._now_s += LOOK_EVERY_S
            self._watch.look()
            self._watch.look()

    def _rebalance(self) -> None:
        self.rebalances += 1


def test_group_that_owns_everything_is_left_alone() -> None:
    watch = Watch(Group({"a-0": [0, 1], "b-0": [2, 3]}))
    watch.look(10)
    assert watch.rebalances == 0


def test_partition_without_owner_asks_for_a_rebalance_at_the_second_look() -> None:
    watch = Watch(Group({"a-0": [0, 1], "b-0": [2]}))
    watch.look(1)
    assert watch.rebalances == 0
    watch.look(1)
    assert watch.rebalances == 1


def test_finding_that_lasts_asks_for_another_rebalance() -> None:
    watch = Watch(Group({"a-0": []}))
    watch.look(4)
    assert watch.rebalances == 2


def test_partitions_on_their_way_to_a_new_owner_are_no_finding() -> None:
    group = Group({"a-0": [0, 1], "b-0": [2]})
    watch = Watch(group)
    watch.look(1)
    group.owned = {"a-0": [0, 1], "b-0": [3]}
    watch.look(1)
    group.owned = {"a-0": [0, 1], "b-0": [2, 3]}
    watch.look(5)
    assert watch.rebalances == 0


def test_rebalance_in_progress_is_waited_for() -> None:
    group = Group({"a-0": [0]})
    group.state = ConsumerGroupState.PREPARING_REBALANCING
    watch = Watch(group)
    watch.look(5)
    assert watch.rebalances == 0


def test_only_the_first_member_by_name_acts() -> None:
    watch = Watch(Group({"a-0": [0], "b-0": [1]}), instance="b-0")
    watch.look(10)
    assert watch.rebalances == 0


def test_broker_that_does_not_answer_is_asked_again_later() -> None:
    group = Group({"a-0": [0]})
    group.is_reachable = False
    watch = Watch(group)
    watch.look(3)
    assert (watch.rebalances, group.asked) == (0, 3)
    group.is_reachable = True
    watch.look(2)
    assert watch.rebalances == 1


def test_coordinator_that_has_moved_is_found_by_a_new_client() -> None:
    group = Group({"a-0": [0, 1]})
    watch = Watch(group)
    group.coordinator_known_to = 2
    watch.look(10)
    assert group.clients == 2
    assert watch.rebalances > 0
