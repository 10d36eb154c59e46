"""Errors of the client: each says what was found, where, and what to do about it."""

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError

from proxy.client.receipt import Receipt

FORGETS: Final = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
FORGOTTEN: Final = (
    ". The broker forgets a transactional.id that is not used for long "
    "(transactional.id.expiration.ms). Try again: the next transaction has a new one"
)


class ClientError(Exception):
    """Root of all errors that this package raises of its own."""


class RequestRefused(ClientError, ValueError):
    """A record asks for something the proxy could not follow; nothing was sent."""


class ConfigRefused(ClientError, ValueError):
    """A setting contradicts what this client promises; nothing was opened."""


class NotStored(ClientError):
    """The broker does not have the record, or has not confirmed it in time.

    `error` is the broker's or librdkafka's own.
    """

    def __init__(self, error: KafkaError, ingress: str) -> None:
        super().__init__(f"{ingress} has not taken the record: {_explained(error, ingress)}")
        self.error = error
        self.ingress = ingress


class QueueFull(NotStored, BufferError):
    """The local queue stayed full for as long as `send` may wait: the broker takes too little."""


class StillUnsent(ClientError):
    """Closed with records that the broker has not confirmed; their futures have failed too."""

    def __init__(self, records: int, waited_s: float) -> None:
        super().__init__(
            f"{records} records were not confirmed within {waited_s:g} s and are given up: "
            "see whether the broker can be reached, then send them again"
        )
        self.records = records


class BatchFailed(ClientError):
    """Some records of a batch are not stored.

    `receipts` has one place per record that was tried, None where it failed; `failures` says why,
    by index. Records behind the last place were not tried. Of a batch that was one transaction
    nothing is visible, so every place is None.
    """

    def __init__(
        self, receipts: Sequence[Receipt | None], failures: Mapping[int, ClientError], what: str
    ) -> None:
        index, first = next(iter(sorted(failures.items())))
        super().__init__(f"{what}; record {index}: {first}")
        self.receipts = list(receipts)
        self.failures = dict(failures)


class TransactionFailed(ClientError):
    """A Kafka transaction was aborted: nothing of it is visible to read_committed consumers.

    It may be tried again. After a record that the broker refused, librdkafka may need to fail one
    transaction more (OUT_OF_ORDER_SEQUENCE_NUMBER) before it can go on.
    """

    def __init__(self, error: KafkaError, what: str) -> None:
        remedy = FORGOTTEN if error.code() in FORGETS else ""
        super().__init__(f"{what}: {error.str()}{remedy}")
        self.error = error


class TransactionInDoubt(TransactionFailed):
    """Whether the transaction was committed is not known: look, or send again under the same id."""


class ProducerFenced(TransactionFailed):
    """Another producer has taken over the `transactional.id`, or this one can never go on."""


class RetryNotStored(ClientError):
    """A record failed and its retry request could not be stored; its offset is not committed.

    Start the consumer again once the cause is gone: it will get the record again.
    """


class BrokerError(ClientError):
    """The broker refuses a consumer, for want of a right maybe, or does not answer.

    `error` is Kafka's own.
    """

    def __init__(self, error: KafkaError, what: str) -> None:
        super().__init__(what)
        self.error = error


class HandlersHang(ClientError):
    """Handlers were given up because they did not return in time, and still run: too many of them,
    or one that blocks the event loop.

    What is handled is committed. A thread cannot be ended from outside: start the process anew.
    """

    def __init__(self, hanging: int, why: str) -> None:
        super().__init__(
            f"{hanging} handlers have not returned within handler_timeout and still run, {why}: "
            "start this process anew, which alone ends them, and give what the handler waits for "
            "(its database, its HTTP client) a time limit"
        )
        self.hanging = hanging


class TopicsMissing(ClientError):
    """Topics that the consumer needs do not exist and could not be made."""


def _explained(error: KafkaError, ingress: str) -> str:
    return f"{error.str()}{_REMEDIES.get(error.code(), '').format(ingress=ingress)}"


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
