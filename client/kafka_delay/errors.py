"""The client's errors. Each sentence names the cause and the remedy."""

from typing import ClassVar, Final

from confluent_kafka import KafkaError

FORGETS: Final = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
"""The broker's answers to an expired `transactional.id`."""
_FORGOTTEN = (
    ". The broker forgets a transactional.id that is not used for long "
    "(transactional.id.expiration.ms). Try again: the next transaction registers it again"
)
_MISSING = (
    ". There is no topic {ingress}: start the proxy, run `kafka-delay-proxy topics create`, "
    "or name another topic with ingress="
)
_GIVEN_UP = ". Its transaction was aborted, or its producer was closed: send it again"
_REMEDIES = {
    KafkaError._PURGE_QUEUE: _GIVEN_UP,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT: _GIVEN_UP,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART: _MISSING,
    KafkaError._UNKNOWN_TOPIC: _MISSING,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ". Grant this user Write and Describe on {ingress}",
    KafkaError.MSG_SIZE_TOO_LARGE: (
        ". Raise message.max.bytes in these settings and max.message.bytes of the topic"
    ),
    KafkaError._MSG_TIMED_OUT: (  # noqa: SLF001
        ". Check that the brokers in bootstrap.servers can be reached"
    ),
    KafkaError._STATE: (  # noqa: SLF001
        ". A producer with a transactional.id sends in transactions only: write "
        "`with producer.transaction():`"
    ),
}
_TRANSACTION_REMEDIES = {
    **dict.fromkeys(FORGETS, _FORGOTTEN),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        ". Grant this user Write and Describe on the transactional.id"
    ),
}


class ClientError(Exception):
    """Base class of the client's errors."""


class RequestRefused(ClientError, ValueError):
    """An argument that the proxy could not serve. Nothing was sent."""


class ConfigRefused(ClientError, ValueError):
    """A setting with which the client could not keep its promises. Nothing was opened."""


class NotStored(ClientError):
    """The broker refused the record, or has not confirmed it.

    `login_error` says why the broker refused the login or TLS, if it did.
    """

    def __init__(self, error: KafkaError, ingress: str, login_error: str | None = None) -> None:
        remedy = _REMEDIES.get(error.code(), "").format(ingress=ingress)
        if login_error and error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001
            remedy = f". {login_error}"
        super().__init__(f"the record is not stored in {ingress}: {error.str()}{remedy}")
        self.error = error
        """librdkafka's error."""
        self.ingress = ingress


class QueueFull(NotStored, BufferError):
    """The producer's queue stayed full for `max_block_s`. Send the record again later."""


class StillUnsent(ClientError):
    """The producer was closed with unconfirmed records. Their futures have failed.

    `login_error` says why the broker refused the login or TLS, if it did.
    """

    def __init__(self, records: int, waited_s: float, login_error: str | None = None) -> None:
        were = "record was" if records == 1 else "records were"
        why = login_error or "Check that the broker can be reached"
        super().__init__(
            f"{records} {were} not confirmed within {waited_s:g} s. {why}, then send again"
        )
        self.records = records
        """The number of unconfirmed records."""


class TransactionFailed(ClientError):
    """A Kafka transaction was aborted. None of its records is visible. Try the transaction again.

    librdkafka may fail the next transaction, too (OUT_OF_ORDER_SEQUENCE_NUMBER).
    """

    _remedy: ClassVar[str] = ". Try the transaction again"

    def __init__(self, error: KafkaError, what: str) -> None:
        remedy = _TRANSACTION_REMEDIES.get(error.code(), self._remedy)
        super().__init__(f"{what}: {error.str()}{remedy}")
        self.error = error
        """librdkafka's error."""


class TransactionInDoubt(TransactionFailed):
    """The broker has not confirmed a commit, so its result is unknown.

    Records with ids may be sent again, because they replace the records with the same ids.
    The next transaction first asks for the result, and raises this error while it is unknown.
    """

    _remedy = ". Begin another transaction: it first asks for the result of this one"


class ProducerFenced(TransactionFailed):
    """Another process uses the same `transactional.id`, or this producer has become unusable."""

    _remedy = ". Open another producer"


class RetryNotStored(ClientError):
    """A retry request is not stored, and the offset of its record is not committed.

    Remove the cause and start the consumer again. The consumer then reads the record again.
    """


class BrokerError(ClientError):
    """The broker refuses a consumer, or does not answer."""

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(what)
        self.error = error
        """librdkafka's error."""


class HandlersHang(ClientError):
    """Too many handlers hang, or one blocks the event loop. Restart the process."""

    def __init__(self, hanging: int, why: str) -> None:
        super().__init__(
            f"{hanging} handlers still run after handler_timeout, {why}. Restart this process, "
            "because nothing else ends them. Give the handler's calls a time limit (its database, "
            "its HTTP client)"
        )
        self.hanging = hanging
        """The number of handlers that still run."""


class TopicsMissing(ClientError):
    """The retry topic or the check topic is missing, and could not be created."""
