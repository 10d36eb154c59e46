"""The transactional producer of imports and replays. Only the newest run of a command can write.

1. All imports from one source share a transactional id, and so do all replays of one topic. When a
new run takes over, the broker ends the transaction of the old run and refuses its later writes.
2. Only then the new run reads the progress that earlier runs have recorded. No other run can add to
the progress afterwards. 3. A commit with an unknown result is repeated. If the result stays
unknown, the run ends. The next run finds the result by 1 and 2.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from proxy.config.settings import Settings
from proxy.errors import BrokerRefused, ProxyError
from proxy.kafka.access import Right, client_config, grant
from proxy.kafka.client_settings import TUNED_PRODUCER, silent_logger, transaction_timeout_ms
from proxy.protocol.body import Headers
from proxy.publishing.tracked_sender import REFUSAL_CODES

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Limits of a batch, which is one transaction. Until the transaction ends, the proxy cannot read
later records of the ingress."""
CALL_TIMEOUT_S: Final = 10.0
IN_DOUBT_AT_MOST_S: Final = 60.0
QUEUE_FULL_WAIT_S: Final = 0.1
FENCED: Final = KafkaError._FENCED  # noqa: SLF001
TAKEN_OVER: Final = frozenset(
    {FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
PURGED: Final = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001
)
TOO_LATE: Final = KafkaError(
    KafkaError._TIMED_OUT, "the ingress topic accepted no records in time", retriable=True
)


class IngressRecord(NamedTuple):
    """A record for the ingress. With partition -1 its key decides on the partition."""

    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers


class Aborted(Exception):
    """The transaction is aborted, so the proxy reads none of its records."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error

    @property
    def may_pass(self) -> bool:
        """Whether the same transaction can succeed later."""
        return self.error.retriable() and not self.is_refusal

    @property
    def is_refusal(self) -> bool:
        """Whether the broker refused a record."""
        return self.error.code() in REFUSAL_CODES


class FencedProducer:
    """Writes transactions. `taken_over` makes the error for a run that a later run has fenced. All
    methods raise this error and KafkaException."""

    def __init__(self, producer: Producer, taken_over: Callable[[], ProxyError]) -> None:
        self._producer, self._taken_over = producer, taken_over

    def take_over(self) -> None:
        """End the transaction of any earlier run. Call this before the progress is read."""
        self._producer.init_transactions(CALL_TIMEOUT_S * 3)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, records: Iterable[IngressRecord]) -> list[str]:
        """Write the records, and return their places (topic/partition/offset). Raises Aborted."""
        errors: list[KafkaError] = []
        places: dict[int, str] = {}

        def report(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            places[number] = f"{topic}/{message.partition()}/{message.offset()}"

        sent = 0
        for number, (value, key, partition, headers) in enumerate(records):
            given: list[Any] = headers
            reported = partial(report, number)
            self.produce(topic, value, key, partition, headers=given, on_delivery=reported)
            sent += 1
        self._call(self._producer.flush, CALL_TIMEOUT_S)
        if errors or len(places) < sent:
            self._abort(_cause(errors))
        return [places[number] for number in range(sent)]

    def produce(self, *args: Any, **kwargs: Any) -> None:
        while True:
            try:
                return self._call(self._producer.produce, *args, **kwargs)
            except BufferError:
                self._call(self._producer.poll, QUEUE_FULL_WAIT_S)

    def commit(self, in_doubt: Callable[[str], ProxyError]) -> None:
        """Commit. Raises Aborted, or the error of `in_doubt` if the result stays unknown."""
        started_s = time.monotonic()
        while True:
            try:
                return self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.txn_requires_abort():
                    self._abort(error)
                waited_s = time.monotonic() - started_s
                if not error.retriable() or waited_s > IN_DOUBT_AT_MOST_S:
                    raise in_doubt(error.str()) from None

    def _abort(self, error: KafkaError) -> NoReturn:
        if error.code() in TAKEN_OVER:
            raise self._taken_over()
        self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)
        raise Aborted(error)

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            call(*args, **kwargs)
        except SystemError:
            # confluent-kafka 2.16 raises this for delivery reports of a lost producer.
            self._tell_loss()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() == KafkaError._FATAL:
                self._tell_loss()
            if error.code() in TAKEN_OVER:
                raise self._taken_over() from None
            raise

    def _tell_loss(self) -> None:
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() in TAKEN_OVER:
                raise self._taken_over() from None
            raise


def fenced_producer(
    settings: Settings, ident: str, taken_over: Callable[[], ProxyError]
) -> FencedProducer:
    """Return a producer of this transactional id that has taken over. Raises BrokerRefused,
    KafkaException. The client library logs nothing, because a lost producer raises an error."""
    own = client_config(
        settings,
        transactional_id=ident,
        transaction_timeout_ms=transaction_timeout_ms(settings),
        enable_idempotence=True,
        partitioner="murmur2_random",
    )
    config = {**TUNED_PRODUCER, **own, "logger": silent_logger()}
    producer = FencedProducer(Producer(config), taken_over)
    try:
        producer.take_over()
    except KafkaException as raised:
        if raised.args[0].code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        rights = [Right(one, "transactional-id", ident) for one in ("Write", "Describe")]
        raise BrokerRefused(
            f"The user may not use the transactional id {ident}.", grant(rights, settings)
        ) from None
    return producer


def _cause(errors: Sequence[KafkaError]) -> KafkaError:
    """Return the first cause. After one record has failed, the client library purges the others."""
    causes = [error for error in errors if error.code() not in PURGED]
    refused = [error for error in causes if error.code() in REFUSAL_CODES]
    return next(iter([*refused, *causes, TOO_LATE]))
