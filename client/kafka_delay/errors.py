"""Errors of the client: each says what happened, where, and what to do about it."""

from typing import Final

from confluent_kafka import KafkaError

FORGETS: Final = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
"""The broker's answers to a `transactional.id` that it has forgotten."""
_FORGOTTEN = (
    ". The broker forgets a transactional.id that is not used for long "
    "(transactional.id.expiration.ms). Try again: the next transaction has a new one"
)
_MISSING = (
    " (there is no topic {ingress}: start the proxy, run `kafka-delay-proxy topics create`, "
    "or name another one with ingress=)"
)
_GIVEN_UP = " (its transaction was aborted, or its producer closed)"
_REMEDIES = {
    KafkaError._PURGE_QUEUE: _GIVEN_UP,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT: _GIVEN_UP,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART: _MISSING,
    KafkaError._UNKNOWN_TOPIC: _MISSING,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: " (grant this user Write and Describe on {ingress})",
    KafkaError.MSG_SIZE_TOO_LARGE: " (raise message.max.bytes here and max.message.bytes there)",
    KafkaError._MSG_TIMED_OUT: (  # noqa: SLF001
        " (see whether the brokers in bootstrap.servers can be reached)"
    ),
    KafkaError._STATE: (  # noqa: SLF001
        " (a producer with a transactional.id sends within `with producer.transaction():` only)"
    ),
}


class ClientError(Exception):
    """Root of the client's errors."""


class RequestRefused(ClientError, ValueError):
    """The proxy could not follow this request. Nothing was sent."""


class ConfigRefused(ClientError, ValueError):
    """A setting would break what this client promises. Nothing was opened."""


class NotStored(ClientError):
    """The broker does not have the record, or has not confirmed it. `error` is librdkafka's."""

    def __init__(self, error: KafkaError, ingress: str) -> None:
        remedy = _REMEDIES.get(error.code(), "").format(ingress=ingress)
        super().__init__(f"{ingress} has not taken the record: {error.str()}{remedy}")
        self.error = error
        self.ingress = ingress


class QueueFull(NotStored, BufferError):
    """The local queue stayed full for `max_block_s`: the broker takes too little."""


class StillUnsent(ClientError):
    """The producer was closed with unconfirmed records. Their futures have failed too."""

    def __init__(self, records: int, waited_s: float) -> None:
        super().__init__(
            f"{records} records were not confirmed within {waited_s:g} s and are given up: "
            "see whether the broker can be reached, then send them again"
        )
        self.records = records


class TransactionFailed(ClientError):
    """A Kafka transaction was aborted: read_committed consumers see nothing of it. Try it again.

    After a record that the broker refused, librdkafka may fail one more transaction
    (OUT_OF_ORDER_SEQUENCE_NUMBER) before it can go on.
    """

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(f"{what}: {error.str()}{_FORGOTTEN if error.code() in FORGETS else ''}")
        self.error = error


class TransactionInDoubt(TransactionFailed):
    """The broker has not said whether it committed. Look, or send again under the same ids."""


class ProducerFenced(TransactionFailed):
    """Another producer has the `transactional.id`, or this producer can never go on."""


class RetryNotStored(ClientError):
    """A retry request could not be stored, so the record's offset is not committed.

    Start the consumer again once the cause is gone: it gets the record again.
    """


class BrokerError(ClientError):
    """The broker refuses a consumer, or does not answer. `error` is Kafka's own."""

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(what)
        self.error = error


class HandlersHang(ClientError):
    """Too many handlers run beyond their time limit, or one blocks the event loop.

    Handled records are committed. A thread cannot be ended from outside: restart the process.
    """

    def __init__(self, hanging: int, why: str) -> None:
        super().__init__(
            f"{hanging} handlers have not returned within handler_timeout and still run, {why}: "
            "start this process anew, which alone ends them, and give what the handler waits for "
            "(its database, its HTTP client) a time limit"
        )
        self.hanging = hanging


class TopicsMissing(ClientError):
    """Topics that the consumer needs do not exist and could not be created."""
