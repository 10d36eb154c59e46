"""Records of a topic as they arrive, for commands that show or await them."""

import time
from collections.abc import Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from proxy.config.settings import Settings
from proxy.kafka.access.broker_errors import explain, explained
from proxy.kafka.access.connection import Connection, client_config

AGAIN_S = 0.1
NOT_KNOWN_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


def open_consumer(settings: Settings, *topics: str, from_beginning: bool) -> Consumer:
    """A read_committed consumer of all partitions that joins no group and commits nothing.

    Raises as `Connection.describe_topic` does.
    """
    connection = Connection(settings)
    partitions = [
        TopicPartition(topic, part.id)
        for topic in topics
        for part in connection.describe_topic(topic, "Read").partitions
    ]
    with explained(settings):
        consumer = Consumer(
            client_config(
                settings,
                group_id="kafka-delay-proxy-watch",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
            )
        )
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
            if not from_beginning:
                partition.offset = _end_of(consumer, partition)
        consumer.assign(partitions)
    return consumer


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The partition's end; of a topic just made the broker may not know the leader for a moment."""
    deadline = time.monotonic() + Connection.limit_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, Connection.limit_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_KNOWN_YET or time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


def arrivals(
    consumer: Consumer, settings: Settings, end_monotonic: float | None
) -> Iterator[Message]:
    """Records as they come, until `end_monotonic` or for ever; raises what does not pass."""
    while end_monotonic is None or time.monotonic() < end_monotonic:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise explain(error, settings, message.topic(), "Read")
            continue
        yield message
