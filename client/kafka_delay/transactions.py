"""Kafka transactions of a producer."""

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
    """The transactions of a writer with a `transactional.id`, one after the other.

    A commit without an answer within `timeout_s`, or a failed abort, is repeated before the next
    transaction. librdkafka refuses other calls (_CONFLICT) until the repeated call succeeds.
    """

    def __init__(self, writer: IngressWriter, timeout_s: float) -> None:
        self._writer, self._producer = writer, writer.producer
        self._timeout_s = timeout_s
        self._lock = RLock()
        self._is_ready = self._is_open = False
        self._is_committing = self._is_aborting = False
        """Whether a commit, or an abort, was called and may not have ended."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the records written in the block, or abort if the block raises.

        Raises TransactionFailed, ProducerFenced or ConfigRefused.
        Raises TransactionInDoubt for this transaction or the previous one.
        """
        self._writer.refuse_in_callback("a transaction")
        if not self._writer.transactional_id:
            raise ConfigRefused(
                "the producer's settings have no 'transactional.id', which a transaction needs: "
                "add a name that stays the same over restarts, another one for each producer"
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
            raise ConfigRefused(
                "a transaction is open already: end it first, transactions do not nest"
            )
        if not self._is_ready:
            self._insist(self._producer.init_transactions, "the transactional.id cannot be used")
            self._is_ready = True
        self._end_earlier()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _failure(error.args[0], "the transaction was not begun") from error
        self._is_open = True

    def _end_earlier(self) -> None:
        if self._is_committing:
            try:
                self._commit()
                log.warning("the transaction whose result was unknown is committed")
            except TransactionFailed as error:
                if isinstance(error, TransactionInDoubt | ProducerFenced):
                    raise
                log.warning("the transaction whose result was unknown is aborted: %s", error)
        if self._is_aborting:
            what = "the previous transaction was not aborted"
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
        """Flush, then abort.

        Without the flush, an abort can break the producer (librdkafka issue 4849).
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
        """Repeat a call until it succeeds or fails for good.

        Raises TransactionInDoubt after `timeout_s`.
        """
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
