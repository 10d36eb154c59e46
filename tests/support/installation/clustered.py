"""Installation on a cluster of three nodes, where one node may fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.installation.cluster import Cluster
from tests.support.installation.installation import BROKER_STAMPED, Installation
from tests.support.quiet_clients import QUIET
from tests.support.waiting import wait_for

ANSWER_S = 180


class ClusteredInstallation(Installation):
    """Installation whose own topics have three replicas. The node `spare` coordinates nothing for
    the installation, and leads none of its topics."""

    def __init__(self, cluster: Cluster, folder: Path, partitions: int = 2) -> None:
        self.cluster = cluster
        _create_kafkas_own_topics(cluster)
        super().__init__(cluster.bootstrap_servers, folder, partitions)

    @property
    def spare(self) -> int:
        """Return a node that is no coordinator of the group or the first worker's transactions."""
        busy = {
            self.cluster.group_coordinator(f"{self.name}.proxy"),
            self.cluster.transaction_coordinator(f"{self.name}.proxy-one-0"),
        }
        return min(set(self.cluster.numbers) - busy)

    @property
    def steady(self) -> list[int]:
        return [number for number in self.cluster.numbers if number != self.spare]

    def target_on(
        self, about: str, assignment: list[list[int]], config: Mapping[str, str] | None = None
    ) -> str:
        """Create a target topic with given replicas per partition, the leader first."""
        topic = f"{self.name}.{about}"
        self.cluster.create_topic_on(topic, assignment, {**BROKER_STAMPED, **(config or {})})
        self.targets.append(topic)
        return topic

    def create_own_topics(self) -> None:
        """Create the topics before the proxy does, to choose their leaders."""
        led = [[*self.steady, self.spare]]
        for topic in (self.dead_letters, self.outcomes):
            self.cluster.create_topic_on(topic, led)
        compacted = {"cleanup.policy": "compact"}
        self.cluster.create_topic_on(f"{self.name}.settings", led, compacted)

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        led = [[*self.steady, self.spare], [*reversed(self.steady), self.spare]]
        placed = [led[number % 2] for number in range(partitions)]
        self.cluster.create_topic_on(topic, placed, config)


def _create_kafkas_own_topics(cluster: Cluster) -> None:
    """Create Kafka's own topics, which determines the coordinators."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
    Producer({**settings, "transactional.id": "first"}).init_transactions(ANSWER_S)
    consumer = Consumer({**settings, "group.id": "first"})

    def is_answered() -> bool:
        try:
            return bool(consumer.committed([TopicPartition("__transaction_state", 0)], ANSWER_S))
        except KafkaException:
            return False  # the broker has just become coordinator of this group

    wait_for(is_answered, ANSWER_S, "the coordinator of a group")
    consumer.close()
