"""The client of the proxy for Python; needs confluent_kafka and nothing else.

A plain producer that sets two headers will do (docs/guide.md); this saves the details: ids and
partitions, times that mean what they say, retries of consumers, half messages.
"""

from proxy.client.delay_producer import DelayProducer
from proxy.client.errors import (
    BatchFailed,
    ClientError,
    ConfigRefused,
    NotStored,
    ProducerFenced,
    QueueFull,
    RequestRefused,
    StillUnsent,
    TransactionFailed,
    TransactionInDoubt,
)
from proxy.client.receipt import Receipt
from proxy.client.request import DelayedRecord

__all__ = [
    "BatchFailed",
    "ClientError",
    "ConfigRefused",
    "DelayProducer",
    "DelayedRecord",
    "NotStored",
    "ProducerFenced",
    "QueueFull",
    "Receipt",
    "RequestRefused",
    "StillUnsent",
    "TransactionFailed",
    "TransactionInDoubt",
]
