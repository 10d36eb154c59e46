"""Transactions whose end the broker has not confirmed in time."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_delay.errors import ProducerFenced, TransactionFailed, TransactionInDoubt
from kafka_delay.transactions import Transactions

LATE = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True)
SPOILT = KafkaError(KafkaError._INCONSISTENT, "failed delivery", False, False, True)
FATAL = KafkaError(KafkaError._FATAL, "done for", True)
CONFLICT = KafkaError(KafkaError._CONFLICT, "another call is in progress", False, True)


class Producer:
    """A writer and its producer, which refuses calls until a late call has ended."""

    transactional_id = "t"

    def __init__(self) -> None:
        self.producer = self
        self.done: list[str] = []
        self.answers: dict[str, list[KafkaError | None]] = {}
        self._in_progress: str | None = None

    def refuse_in_callback(self, _what: str) -> None:
        pass

    def init_transactions(self, _within_s: float) -> None:
        pass

    def flush(self, _within_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self._call("begin")

    def commit_transaction(self, _within_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, _within_s: float) -> None:
        self._call("abort")

    def _call(self, name: str) -> None:
        if self._in_progress not in {None, name}:
            raise KafkaException(CONFLICT)
        answers = self.answers.get(name)
        error = answers.pop(0) if answers else None
        self._in_progress = name if error is LATE else None
        self.done.append(name if error is None else f"{name}: {error.str()}")
        if error is not None:
            raise KafkaException(error)


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def transactions(producer: Producer) -> Transactions:
    return Transactions(cast(Any, producer), 0)


def in_doubt(producer: Producer, transactions: Transactions, *then: KafkaError | None) -> None:
    producer.answers["commit"] = [LATE, *then]
    with pytest.raises(TransactionInDoubt), transactions.transaction():
        pass
    producer.done.clear()


def test_after_doubt_the_same_commit_is_made_again_before_the_next_transaction_begins(
    producer: Producer, transactions: Transactions
) -> None:
    in_doubt(producer, transactions)
    with transactions.transaction():
        pass
    assert producer.done == ["commit", "begin", "commit"]


def test_while_it_stays_unknown_doubt_is_told_again_and_nothing_begins(
    producer: Producer, transactions: Transactions
) -> None:
    in_doubt(producer, transactions, LATE)
    with pytest.raises(TransactionInDoubt), transactions.transaction():
        raise AssertionError("it must not begin")
    assert producer.done == ["commit: no answer"]


def test_one_in_doubt_that_has_failed_is_aborted_before_the_next_transaction_begins(
    producer: Producer, transactions: Transactions
) -> None:
    in_doubt(producer, transactions, SPOILT)
    with transactions.transaction():
        pass
    assert producer.done == ["commit: failed delivery", "abort", "begin", "commit"]


def test_one_in_doubt_whose_producer_is_done_for_is_told_as_that(
    producer: Producer, transactions: Transactions
) -> None:
    in_doubt(producer, transactions, FATAL)
    with pytest.raises(ProducerFenced), transactions.transaction():
        raise AssertionError("it must not begin")


def test_an_abort_that_was_not_confirmed_is_made_again(
    producer: Producer, transactions: Transactions
) -> None:
    producer.answers["abort"] = [LATE, LATE]
    with pytest.raises(LookupError), transactions.transaction():
        raise LookupError
    with pytest.raises(TransactionFailed, match="previous transaction was not aborted"):
        transactions.transaction().__enter__()
    with transactions.transaction():
        pass
    tried = ["begin", "abort: no answer", "abort: no answer"]
    assert producer.done == [*tried, "abort", "begin", "commit"]
