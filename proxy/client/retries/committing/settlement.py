"""Stores the retry requests, then commits the offsets."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proxy.client.errors import NotStored, RetryNotStored
from proxy.client.ingress_writer import IngressWriter
from proxy.client.place import Partition, Place
from proxy.client.receipt import Receipt
from proxy.client.retries.committing.backlog import Backlog, Position

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
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors that pass by themselves, or with the next look at the topics."""

MayCommit = Callable[[], Collection[Partition]]
"""Called before a commit: returns the partitions to leave out. Raises NoAnswer."""


class GroupMoved(Exception):
    """The group is being shared out anew: nothing was committed, poll and settle again."""


class NoAnswer(Exception):
    """No broker took the commit, or said what has to be known before it: settle again later."""


class Settlement:
    """Makes a backlog's records final: first the requests, then the offsets behind them.

    A crash in between repeats the records, and their requests, too.
    """

    def __init__(self, consumer: Consumer, writer: IngressWriter) -> None:
        self._consumer, self._writer = consumer, writer

    def settle(self, backlog: Backlog, may_commit: MayCommit = tuple) -> None:
        """Store the requests, commit the offsets, and note both in the backlog.

        Raises GroupMoved, NoAnswer, RetryNotStored, KafkaException.
        """
        unstored = self._store(backlog)
        if unstored:
            with suppress(GroupMoved, NoAnswer, KafkaException):
                self._commit(backlog, may_commit)
            raise _not_stored(unstored)
        self._commit(backlog, may_commit)

    def _commit(self, backlog: Backlog, may_commit: MayCommit) -> None:
        left_out = may_commit()
        positions = [one for one in backlog.positions() if one.partition not in left_out]
        commit(self._consumer, positions)
        backlog.settled(positions)

    def _store(self, backlog: Backlog) -> dict[Place, NotStored]:
        """Store the requests. Return the errors of those that the broker does not have."""
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


def commit(consumer: Consumer, positions: Sequence[Position]) -> None:
    """Commit and wait for the answer. Raises GroupMoved, NoAnswer, KafkaException."""
    if not positions:
        return
    wire = [TopicPartition(*partition, offset) for partition, offset in positions]
    try:
        for answer in consumer.commit(offsets=wire, asynchronous=False):
            if answer.error is not None:
                raise KafkaException(answer.error)
    except KafkaException as error:
        if error.args[0].code() in OTHER_GENERATION:
            raise GroupMoved(error.args[0].str()) from error
        if error.args[0].code() in PASSING:
            raise NoAnswer(error.args[0].str()) from error
        raise


def _not_stored(unstored: Mapping[Place, Exception]) -> RetryNotStored:
    place, error = min(unstored.items())
    return RetryNotStored(
        f"{len(unstored)} failed records could not be handed to the proxy, first {place}: {error}; "
        "their offsets are not committed: start the consumer again when the cause is gone"
    )
