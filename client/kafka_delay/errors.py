"""Errors of the client, each with cause and remedy."""

from typing import Final

from confluent_kafka import KafkaError

FORGETS: Final = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
"""Broker's answers to an expired `transactional.id`."""
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
    """The broker has refused the record or not confirmed it. `error` is librdkafka's."""

    def __init__(self, error: KafkaError, ingress: str) -> None:
        remedy = _REMEDIES.get(error.code(), "").format(ingress=ingress)
        super().__init__(f"{ingress} has not taken the record: {error.str()}{remedy}")
        self.error = error
        self.ingress = ingress


class QueueFull(NotStored, BufferError):
    """The local queue stayed full for `max_block_s`."""


class StillUnsent(ClientError):
    """The producer was closed with unconfirmed records, whose futures have failed too."""

    def __init__(self, records: int, waited_s: float) -> None:
        super().__init__(
            f"{records} records were not confirmed within {waited_s:g} s and are given up: "
            "see whether the broker can be reached, then send them again"
        )
        self.records = records


class TransactionFailed(ClientError):
    """A Kafka transaction was aborted and left nothing visible. Try it again.

    librdkafka may fail the next one too (OUT_OF_ORDER_SEQUENCE_NUMBER).
    """

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(f"{what}: {error.str()}{_FORGOTTEN if error.code() in FORGETS else ''}")
        self.error = error


class TransactionInDoubt(TransactionFailed):
    """The result of a commit is unknown. Check it, or send again under the same ids."""


class ProducerFenced(TransactionFailed):
    """Another producer has the `transactional.id`, or this producer cannot continue."""


class RetryNotStored(ClientError):
    """A retry request was not stored. Restart the consumer to read the record again."""


class BrokerError(ClientError):
    """The broker refuses a consumer or does not answer. `error` is Kafka's."""

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(what)
        self.error = error


class HandlersHang(ClientError):
    """Too many handlers hang, or one blocks the event loop. Restart the process."""

    def __init__(self, hanging: int, why: str) -> None:
        super().__init__(
            f"{hanging} handlers have not returned within handler_timeout and still run, {why}: "
            "start this process anew, which alone ends them, and give what the handler waits for "
            "(its database, its HTTP client) a time limit"
        )
        self.hanging = hanging


class TopicsMissing(ClientError):
    """Topics of the consumer are missing and could not be created."""
