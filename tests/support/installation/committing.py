"""A stand-in for the proxy's commits: offsets with metadata, in transactions left open at will."""

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
    """The topic's id as the proxy writes it. A broker may answer that it has created a topic before
    it knows it."""
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
    """As the proxy writes it: `i` and `s` are needed, the rest has values of a fresh start."""
    return json.dumps({"v": 1, "t": -1, "c": None, "f": 0, **fields})


def commit(bootstrap: str, group_id: str, places: list[TopicPartition]) -> None:
    """Commit offsets with their metadata, without a transaction."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    try:
        group_offsets.commit(consumer, places)
    finally:
        consumer.close()


def open_transaction(bootstrap: str) -> Producer:
    """A producer in the midst of a transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": uuid.uuid4().hex,
            "transaction.timeout.ms": 600_000,  # on a slow machine a minute is soon over
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    return producer
