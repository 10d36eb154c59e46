"""Stand-in for the proxy's commits: offsets with metadata, and open transactions."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)

from tests.support import group_offsets
from tests.support.quiet_clients import admin_client
from tests.support.waiting import wait_for

TIMEOUT_S = 180


def topic_id(bootstrap: str, topic: str) -> str:
    """Return the topic's id in the proxy's format. Wait until the broker can describe the topic,
    because it may confirm a new topic earlier."""
    admin, found = admin_client(bootstrap), []

    def is_known() -> bool:
        try:
            found.append(admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return bool(found)

    wait_for(is_known, TIMEOUT_S, f"the broker to know {topic}")
    return str(found[0].topic_id).replace("+", "-").replace("/", "_")


def metadata(**fields: Any) -> str:
    """Return metadata in the proxy's format. `i` and `s` are required, the rest has defaults."""
    return json.dumps({"v": 1, "t": -1, "c": None, "f": 0, **fields})


def commit(bootstrap: str, group_id: str, places: list[TopicPartition]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    try:
        group_offsets.commit(consumer, places)
    finally:
        consumer.close()


def open_transaction(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": uuid.uuid4().hex,
            "transaction.timeout.ms": 600_000,  # a minute may be too short on a slow machine
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    return producer
