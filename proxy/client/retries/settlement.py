"""Stores what has to be retried, then commits: in this order, or both in one transaction."""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.client.errors import (
    NotStored,
    ProducerFenced,
    RetryNotStored,
    TransactionFailed,
    TransactionInDoubt,
)
from proxy.client.ingress_writer import IngressWriter
from proxy.client.place import Place
from proxy.client.receipt import Receipt
from proxy.client.retries.backlog import Backlog
from proxy.client.transactions import Transactions

OTHER_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
ASK_WITHIN_S: Final = 5.0

log = logging.getLogger("proxy.client")


class GroupMoved(Exception):
    """The group is being shared out anew: nothing was committed, poll and settle again."""


class Settlement(Protocol):
    """Makes a backlog's records final.

    `settle` takes out of the backlog what can be settled, or raises GroupMoved and leaves in it
    what is still to be done, or raises what ends the consumer.
    """

    def settle(self, backlog: Backlog) -> None:
        """Store the requests and commit the offsets."""


class AtLeastOnce:
    """Requests first; when the broker has them the offsets, up to the first one it does not."""

    def __init__(self, consumer: Consumer, writer: IngressWriter) -> None:
        self._consumer, self._writer = consumer, writer

    def settle(self, backlog: Backlog) -> None:
        """Raises GroupMoved, RetryNotStored, KafkaException."""
        unstored = self._unstored(backlog)
        if unstored:
            with suppress(GroupMoved, KafkaException):
                commit(self._consumer, _positions(backlog, unstored))
            raise _not_stored(unstored)
        backlog.stored()
        commit(self._consumer, _positions(backlog))
        backlog.settled()

    def _unstored(self, backlog: Backlog) -> dict[Place, NotStored]:
        unstored: dict[Place, NotStored] = {}
        under_way: list[tuple[Place, Future[Receipt]]] = []
        for place, request in backlog.requests:
            try:
                under_way.append((place, self._writer.write(request)))
            except NotStored as error:
                unstored[place] = error
        for place, future in under_way:
            try:
                future.result()
            except NotStored as error:
                unstored[place] = error
        return unstored


class ExactlyOnce:
    """Requests and offsets in one Kafka transaction; offsets alone need none."""

    def __init__(
        self, consumer: Consumer, writer: IngressWriter, transactions: Transactions
    ) -> None:
        self._consumer, self._writer = consumer, writer
        self._transactions = transactions

    def settle(self, backlog: Backlog) -> None:
        """Raises GroupMoved, RetryNotStored, TransactionInDoubt, ProducerFenced, KafkaException."""
        if backlog.requests:
            self._settle_in_transaction(backlog)
        else:
            commit(self._consumer, _positions(backlog))
        backlog.settled()

    def _settle_in_transaction(self, backlog: Backlog) -> None:
        try:
            self._commit(backlog)
        except (TransactionInDoubt, ProducerFenced):
            raise
        except (TransactionFailed, NotStored) as error:
            if error.error.code() in OTHER_GENERATION:
                raise GroupMoved(str(error)) from error
            unstored = {place: error for place, _ in backlog.requests}
            raise _not_stored(unstored) from error

    def _commit(self, backlog: Backlog) -> None:
        with self._transactions.transaction():
            for _, request in backlog.requests:
                self._writer.write(request)
            metadata = self._consumer.consumer_group_metadata()
            self._transactions.add_offsets(_positions(backlog), metadata)


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit and wait for the answer. Raises GroupMoved, KafkaException."""
    if not offsets:
        return
    try:
        _raise_first_error(consumer.commit(offsets=offsets, asynchronous=False))
    except KafkaException as error:
        if error.args[0].code() in OTHER_GENERATION:
            raise GroupMoved(str(error)) from error
        raise


def committed(
    consumer: Consumer, partitions: Sequence[TopicPartition], within_s: float
) -> list[TopicPartition]:
    """What is committed of these partitions, once a transaction that a predecessor has left open is
    over. Raises KafkaException.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            found = consumer.committed(list(partitions), ASK_WITHIN_S)
            _raise_first_error(found)
            return found
        except KafkaException as error:
            if time.monotonic() > until_s:
                raise
            log.info("waiting for committed offsets: %s", error.args[0].str())


def _raise_first_error(answers: Sequence[TopicPartition]) -> None:
    """An answer about several partitions may be right for some of them only."""
    errors = [one.error for one in answers if one.error is not None]
    if errors:
        raise KafkaException(errors[0])


def _positions(backlog: Backlog, unstored: Collection[Place] = ()) -> list[TopicPartition]:
    positions = []
    for partition, offset in backlog.offsets(unstored).items():
        metadata = backlog.attempts.metadata(partition, offset)
        without = TopicPartition(*partition, offset)
        positions.append(TopicPartition(*partition, offset, metadata) if metadata else without)
    return positions


def _not_stored(unstored: Mapping[Place, Exception]) -> RetryNotStored:
    place, error = min(unstored.items())
    return RetryNotStored(
        f"{len(unstored)} failed records could not be handed to the proxy, first {place}: {error}; "
        "their offsets are not committed: start the consumer again when the cause is gone"
    )
