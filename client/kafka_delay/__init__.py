"""The Python client of kafka-delay-proxy (docs/client.md).

May use confluent_kafka and nothing else. Begin with `producer`; `retry_consumer` has the consumer,
`half_messages` the transactional producer.
"""

from kafka_delay.errors import (
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
from kafka_delay.half_messages import (
    HalfMessage,
    State,
    TransactionalDelayProducer,
    TransactionListener,
    TransactionResult,
)
from kafka_delay.producer import AsyncDelayProducer, BatchFailed, DelayProducer
from kafka_delay.request import DelayedRecord, Receipt, delayed
from kafka_delay.retries import DeadLetter, Received, RetryLater
from kafka_delay.retry_consumer import AsyncRetryConsumer, RetryConsumer

__version__ = "0.1.0"

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
    "delayed",
]
