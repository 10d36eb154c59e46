"""The client of the proxy for Python; needs confluent_kafka and nothing else.

A plain producer that sets two headers will do (docs/guide.md); this saves the details: ids and
partitions, times that mean what they say, retries of consumers, half messages.
"""

from proxy.client.check_backs import TransactionListener
from proxy.client.delay_producer import DelayProducer
from proxy.client.errors import (
    BatchFailed,
    ClientError,
    ConfigRefused,
    NotStored,
    ProducerFenced,
    QueueFull,
    RequestRefused,
    RetryNotStored,
    StillUnsent,
    TopicsMissing,
    TransactionFailed,
    TransactionInDoubt,
)
from proxy.client.half_message import HalfMessage, State
from proxy.client.receipt import Receipt
from proxy.client.received import Received
from proxy.client.request import DelayedRecord
from proxy.client.retry_consumer import RetryConsumer
from proxy.client.retry_request import DeadLetter
from proxy.client.transactional_producer import TransactionalDelayProducer, TransactionResult

__all__ = [
    "BatchFailed",
    "ClientError",
    "ConfigRefused",
    "DeadLetter",
    "DelayProducer",
    "DelayedRecord",
    "HalfMessage",
    "NotStored",
    "ProducerFenced",
    "QueueFull",
    "Receipt",
    "Received",
    "RequestRefused",
    "RetryConsumer",
    "RetryNotStored",
    "State",
    "StillUnsent",
    "TopicsMissing",
    "TransactionFailed",
    "TransactionInDoubt",
    "TransactionListener",
    "TransactionResult",
    "TransactionalDelayProducer",
]
