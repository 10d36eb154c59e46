"""Kafka transactions of a producer, whose records become visible as a whole."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from kafka_delay.errors import ConfigRefused, ProducerFenced, TransactionFailed, TransactionInDoubt
from kafka_delay.ingress_writer import IngressWriter

FLUSH_BEFORE_ABORT_S: Final = 2.0
ABORT_WITHIN_S: Final = 30.0
SHORTEST_CALL_S: Final = 0.1

log = logging.getLogger("kafka_delay")


class Transactions:
    """The sequential transactions of a writer with a `transactional.id`.

    After `timeout_s` a commit or abort is repeated before the next transaction, because librdkafka
    refuses other calls (_CONFLICT).
    """

    def __init__(self, writer: IngressWriter, timeout_s: float) -> None:
        self._writer, self._producer = writer, writer.producer
        self._timeout_s = timeout_s
        self._lock = RLock()
        self._is_ready = self._is_open = False
        self._is_committing = self._is_aborting = False
        """Begun and perhaps not ended."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the records written in the block, or abort if it raises.

        Raises TransactionFailed, ProducerFenced, or TransactionInDoubt (this or the previous one).
        """
        self._writer.refuse_in_callback("a transaction")
        if not self._writer.transactional_id:
            raise ConfigRefused(
                "a transaction needs 'transactional.id' in the producer's settings: a name that "
                "is stable over restarts, and different for each producer that runs at one time"
            )
        with self._lock:
            self._begin()
            try:
                yield
            except BaseException:
                self._abort()
                raise
            else:
                self._commit()
            finally:
                self._is_open = False

    def _begin(self) -> None:
        if self._is_open:
            raise ConfigRefused("a transaction is open already: they do not nest")
        if not self._is_ready:
            self._insist(self._producer.init_transactions, "the transactional.id cannot be used")
            self._is_ready = True
        self._end_earlier()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _failure(error.args[0], "no transaction could be begun") from error
        self._is_open = True

    def _end_earlier(self) -> None:
        if self._is_committing:
            try:
                self._commit()
                log.warning("the transaction that was in doubt is committed")
            except TransactionFailed as error:
                if isinstance(error, TransactionInDoubt | ProducerFenced):
                    raise
                log.warning("the transaction that was in doubt is aborted: %s", error)
        if self._is_aborting:
            what = "the transaction before was not aborted"
            try:
                self._insist(self._producer.abort_transaction, what)
            except TransactionInDoubt as error:
                raise TransactionFailed(error.error, what) from error
            self._is_aborting = False

    def _commit(self) -> None:
        self._is_committing = True
        try:
            self._insist(self._producer.commit_transaction, "the transaction was not committed")
        except TransactionFailed as error:
            if not isinstance(error, TransactionInDoubt | ProducerFenced):
                self._is_committing = False
                self._abort()
            raise
        self._is_committing = False

    def _abort(self) -> None:
        """Wait for records on their way, then abort.

        An abort during the first record can break the producer for good (librdkafka issue 4849).
        """
        self._is_aborting = True
        self._producer.flush(FLUSH_BEFORE_ABORT_S)
        try:
            self._producer.abort_transaction(ABORT_WITHIN_S)
        except KafkaException as error:
            self._is_aborting = error.args[0].code() != KafkaError._STATE  # noqa: SLF001
        else:
            self._is_aborting = False

    def _insist(self, call: Callable[[float], None], what: str) -> None:
        """Repeat until success or a final failure. After the time limit it is in doubt."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                call(max(left_s, SHORTEST_CALL_S))
                return
            except KafkaException as raised:
                error = raised.args[0]
                if not error.retriable() or error.txn_requires_abort():
                    raise _failure(error, what) from raised
                if left_s <= 0:
                    raise TransactionInDoubt(error, f"{what} in {self._timeout_s:g} s") from raised


def _failure(error: KafkaError, what: str) -> TransactionFailed:
    if error.fatal() or error.code() == KafkaError._FENCED:  # noqa: SLF001
        return ProducerFenced(error, f"{what}, and this producer cannot go on")
    return TransactionFailed(error, what)
