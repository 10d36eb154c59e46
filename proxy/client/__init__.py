"""The client of the proxy for Python; needs confluent_kafka and nothing else.

A plain producer that sets two headers will do (docs/guide.md); this saves the details: ids and
partitions, times that mean what they say, retries of consumers, half messages (docs/client.md).

May use leaves of records and requests: names of headers and topics, times. Begin with
`delay_producer`; `retries` has the consumer, `half_messages` the transactional producer.
"""

from proxy.client.async_delay_producer import AsyncDelayProducer
from proxy.client.delay_producer import DelayProducer
from proxy.client.errors import (
    BatchFailed,
    BrokerError,
    ClientError,
    ConfigRefused,
    HandlersHang,
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
from proxy.client.half_messages.check_backs import TransactionListener
from proxy.client.half_messages.half_message import HalfMessage, State
from proxy.client.half_messages.transactional_producer import (
    TransactionalDelayProducer,
    TransactionResult,
)
from proxy.client.receipt import Receipt
from proxy.client.request import DelayedRecord
from proxy.client.retries.async_retry_consumer import AsyncRetryConsumer
from proxy.client.retries.handling.failure import DeadLetter, RetryLater
from proxy.client.retries.received import Received
from proxy.client.retries.retry_consumer import RetryConsumer

__all__ = [
    "AsyncDelayProducer",
    "AsyncRetryConsumer",
    "BatchFailed",
    "BrokerError",
    "ClientError",
    "ConfigRefused",
    "DeadLetter",
    "DelayProducer",
    "DelayedRecord",
    "HalfMessage",
    "HandlersHang",
    "NotStored",
    "ProducerFenced",
    "QueueFull",
    "Receipt",
    "Received",
    "RequestRefused",
    "RetryConsumer",
    "RetryLater",
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
