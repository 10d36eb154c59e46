"""Writes records to the ingress topic for the commands, one at a time."""

from typing import Any

from confluent_kafka import Message, Producer

from proxy.cli.kafka.ingress_record import IngressRecord
from proxy.config.settings import Settings
from proxy.errors import BrokerLate, ProxyError
from proxy.kafka.access.broker_errors import explain, explained
from proxy.kafka.access.connection import Connection, client_config
from proxy.kafka.client_settings import connected


class PartitionUnknown(ProxyError):
    """The ingress topic has no such partition."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"The topic {topic} has no partition {partition}.",
            f"Name one from 0 to {partitions - 1}, as in the record's origin (topic/partition/"
            "offset), or leave --partition out if the record was keyed by its id.",
        )


def ingress_producer(settings: Settings) -> Producer:
    """A producer that places records by key as Java clients do: all that belongs to one id meets
    in one partition, whoever writes it."""
    with explained(settings):
        return Producer(
            client_config(
                settings,
                acks="all",
                enable_idempotence=True,
                linger_ms=0,
                partitioner="murmur2_random",
            )
        )


def write_to_ingress(settings: Settings, record: IngressRecord) -> Message:
    """Write one record and wait for the broker's receipt.

    Raises TopicUnknown, PartitionUnknown, BrokerUnreachable, BrokerLate or BrokerRefused.
    """
    ingress = settings.topics.ingress
    partitions = len(Connection(settings).describe_topic(ingress, "Write").partitions)
    if record.partition >= partitions:
        raise PartitionUnknown(ingress, record.partition, partitions)
    producer = connected(ingress_producer(settings), ingress)
    reports: list[tuple[Any, Message]] = []
    producer.produce(
        ingress,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        partition=record.partition,
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    producer.flush(Connection.limit_s)
    if not reports:
        unconfirmed = "it did not confirm the record, which may count all the same"
        raise BrokerLate(settings.bootstrap_servers, unconfirmed)
    error, message = reports[0]
    if error is not None:
        raise explain(error, settings, ingress, "Write")
    return message


def origin_of(message: Message) -> str:
    """`topic/partition/offset` of a record that was written."""
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
