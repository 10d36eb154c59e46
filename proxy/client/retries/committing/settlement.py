"""Stores what has to be retried, then commits: in this order, or both in one transaction."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
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
from proxy.client.request import Request
from proxy.client.retries.committing.backlog import Backlog, Position
from proxy.client.transactions import Transactions

OTHER_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
PASSING: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""What a consumer that polls would wait out, too."""
ASK_WITHIN_S: Final = 5.0
ASK_AT_LEAST_S: Final = 0.1
ASK_AGAIN_AFTER_S: Final = 0.1
"""Many failures are answered at once."""

log = logging.getLogger("proxy.client")


class GroupMoved(Exception):
    """The group is being shared out anew: nothing was committed, poll and settle again."""


class OffsetsUnknown(Exception):
    """Told to stop while the committed offsets of new partitions were waited for."""


class MetadataTooLarge(Exception):
    """The broker does not take so much beside an offset: shorten it and settle again."""


class Settlement(Protocol):
    """Makes a backlog's records final.

    `settle` takes out of the backlog what can be settled, or raises GroupMoved or MetadataTooLarge
    and leaves in it what is still to be done, or raises what ends the consumer.
    """

    def settle(self, backlog: Backlog) -> None:
        """Store the requests and commit the offsets."""


class AtLeastOnce:
    """Requests first; when the broker has them the offsets, with what it has behind them."""

    def __init__(self, consumer: Consumer, writer: IngressWriter) -> None:
        self._consumer, self._writer = consumer, writer

    def settle(self, backlog: Backlog) -> None:
        """Raises GroupMoved, MetadataTooLarge, RetryNotStored, KafkaException."""
        unstored = self._store(backlog)
        if unstored:
            with suppress(GroupMoved, MetadataTooLarge, KafkaException):
                commit(self._consumer, backlog.positions())
            raise _not_stored(unstored)
        commit(self._consumer, backlog.positions())
        backlog.settled()

    def _store(self, backlog: Backlog) -> dict[Place, NotStored]:
        """Those that the broker does not have."""
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
        backlog.stored(place for place, _ in under_way if place not in unstored)
        return unstored


class ExactlyOnce:
    """Requests and offsets in one Kafka transaction; offsets alone need none.

    A request waits until the offset can pass its record: what metadata says is not relied upon.
    """

    def __init__(
        self, consumer: Consumer, writer: IngressWriter, transactions: Transactions
    ) -> None:
        self._consumer, self._writer = consumer, writer
        self._transactions = transactions

    def settle(self, backlog: Backlog) -> None:
        """Raises GroupMoved, MetadataTooLarge, RetryNotStored, TransactionInDoubt, ProducerFenced,
        KafkaException.
        """
        if requests := backlog.requests_before_end:
            self._settle_in_transaction(backlog, requests)
            backlog.stored(place for place, _ in requests)
        else:
            commit(self._consumer, backlog.positions())
        backlog.settled()

    def _settle_in_transaction(
        self, backlog: Backlog, requests: Sequence[tuple[Place, Request]]
    ) -> None:
        try:
            with self._transactions.transaction():
                for _, request in requests:
                    self._writer.write(request)
                self._transactions.add_offsets(
                    _wire(backlog.positions(is_stored=True)),
                    self._consumer.consumer_group_metadata(),
                )
        except (TransactionInDoubt, ProducerFenced):
            raise
        except (TransactionFailed, NotStored) as error:
            _raise_if_it_may_be_settled_again(error.error, error)
            raise _not_stored({place: error for place, _ in requests}) from error


def commit(consumer: Consumer, positions: Sequence[Position]) -> None:
    """Commit and wait for the answer. Raises GroupMoved, MetadataTooLarge, KafkaException."""
    if not positions:
        return
    try:
        _raise_first_error(consumer.commit(offsets=_wire(positions), asynchronous=False))
    except KafkaException as error:
        _raise_if_it_may_be_settled_again(error.args[0], error)
        raise


def committed(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    within_s: float,
    is_stopping: Callable[[], bool],
) -> list[TopicPartition]:
    """What is committed of these partitions, once a transaction that a predecessor has left open is
    over, however long the broker keeps it. Raises OffsetsUnknown; KafkaException for an error that
    does not pass by itself, if it does not `within_s` either.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            found = consumer.committed(list(partitions), ASK_WITHIN_S)
            _raise_first_error(found)
            return found
        except KafkaException as error:
            if is_stopping():
                raise OffsetsUnknown from error
            if error.args[0].code() not in PASSING and time.monotonic() > until_s:
                raise
            log.warning("waiting for committed offsets: %s", error.args[0].str())
            time.sleep(ASK_AGAIN_AFTER_S)


def log_end(consumer: Consumer, partition: TopicPartition, until_s: float) -> int | None:
    """Where the partition ends now; asked again until then (monotonic) while no broker says it:
    None.
    """
    while True:
        within_s = min(ASK_WITHIN_S, max(ASK_AT_LEAST_S, until_s - time.monotonic()))
        try:
            found: tuple[int, int] | None = consumer.get_watermark_offsets(partition, within_s)
            why = f"no answer within {within_s:g} s"
        except KafkaException as error:
            found, why = None, error.args[0].str()
        if found is not None:
            return found[1]
        log.warning("%s: where it ends is not known: %s", partition, why)
        if time.monotonic() > until_s:
            return None
        time.sleep(ASK_AGAIN_AFTER_S)


def _raise_first_error(answers: Sequence[TopicPartition]) -> None:
    """An answer about several partitions may be right for some of them only."""
    errors = [one.error for one in answers if one.error is not None]
    if errors:
        raise KafkaException(errors[0])


def _raise_if_it_may_be_settled_again(error: KafkaError, cause: Exception) -> None:
    if error.code() in OTHER_GENERATION:
        raise GroupMoved(str(cause)) from cause
    if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
        raise MetadataTooLarge(str(cause)) from cause


def _wire(positions: Sequence[Position]) -> list[TopicPartition]:
    return [
        TopicPartition(*partition, offset, metadata)
        if metadata
        else TopicPartition(*partition, offset)
        for partition, offset, metadata in positions
    ]


def _not_stored(unstored: Mapping[Place, Exception]) -> RetryNotStored:
    place, error = min(unstored.items())
    return RetryNotStored(
        f"{len(unstored)} failed records could not be handed to the proxy, first {place}: {error}; "
        "their offsets are not committed: start the consumer again when the cause is gone"
    )
