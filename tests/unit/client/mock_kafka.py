"""A Kafka inside librdkafka (`test.mock.num.brokers`) with real produces and fetches.

It creates topics on demand, with four partitions, and keeps all records while it lives.
"""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PARTITIONS = 4
WITHIN_S = 180


class MockKafka:
    """Mock brokers of a producer. `bootstrap` is their address."""

    def __init__(self) -> None:
        self._home = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._home.list_topics(timeout=WITHIN_S).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"
        self.settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0}

    def name(self) -> str:
        return f"ingress-{uuid.uuid4().hex[:8]}"

    def records(self, topic: str, count: int) -> list[Message]:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "reader",
            "log_level": 0,
            "isolation.level": "read_uncommitted",
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            found: list[Message] = []
            while len(found) < count:
                message = consumer.poll(WITHIN_S)
                assert message is not None, f"{len(found)} of {count} records in {topic}"
                if (error := message.error()) is None:
                    found.append(message)
                else:
                    assert error.code() != KafkaError._UNKNOWN_TOPIC
            return found
        finally:
            consumer.close()
