"""How many replicas the topics get that the proxy makes, and how many must confirm a write."""

from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from proxy.config.settings import TopicSettings

ENOUGH: Final = 3
MIN_INSYNC: Final = "min.insync.replicas"
UNPACKED: Final = {"compression.type": "uncompressed"}
"""The broker unpacks a batch before it measures it, so it refuses one that nobody could read."""
TIMEOUT_S: Final = 10.0


class Replication(NamedTuple):
    """As Kafka has it: `replication.factor` and `min.insync.replicas`."""

    factor: int
    min_insync: int


def replication_for(topics: TopicSettings, brokers: int) -> Replication:
    """What the settings ask for; else one replica on each broker, at most three, of which all but
    one must confirm."""
    factor = topics.replication_factor or min(ENOUGH, max(1, brokers))
    return Replication(factor, topics.min_insync_replicas or max(1, factor - 1))


def replication_in(admin: AdminClient, topics: TopicSettings) -> Replication:
    """The same, in this cluster. Raises KafkaException where nobody answers."""
    return replication_for(topics, len(admin.list_topics(timeout=TIMEOUT_S).brokers))
