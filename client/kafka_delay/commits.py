"""Commits of offsets. All records below a committed offset are handled, or stored for a retry."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_delay.errors import NotStored, RetryNotStored
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.kafka import Partition, Place
from kafka_delay.request import Receipt, Request

MOST_UNDONE: Final = 1_000
"""Largest number of a partition's records that are neither handled nor stored for a retry."""
MOST_REPEATED: Final = 10_000
"""Largest number of offsets from a partition's first undone record to the last one read.

After a crash these records are read again.
"""
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
"""Errors of a commit that may succeed later."""


class GroupMoved(Exception):
    """A rebalance prevented the commit. Poll, then call `settle` again."""


class NoAnswer(Exception):
    """No broker answered. Call `settle` again later."""


@dataclass(slots=True)
class Progress:
    """The progress in one partition. Offsets are -1 before the first record is read."""

    topic_id: str | None = None
    """The topic's id, or None if it is unknown."""
    is_gone: bool = False
    """The topic was missing at the last check, so nothing is committed."""
    committed: int = -1
    position: int = -1
    """The offset after the last record that was read."""
    given: int = -1
    """The offset of the last message from the client library. The library may repeat records."""
    epoch: int = -1
    """The highest leader epoch of the records that were read."""
    undone: list[int] = field(default_factory=list)
    """Offsets of records that are neither handled nor stored for a retry, in order."""

    @property
    def end(self) -> int:
        return self.undone[0] if self.undone else self.position

    def done(self, offset: int) -> None:
        place = bisect_left(self.undone, offset)
        assert self.undone[place] == offset
        del self.undone[place]


class Backlog:
    """The partitions of a consumer, and the retry requests that are not stored yet."""

    def __init__(self) -> None:
        self.partitions = defaultdict[Partition, Progress](Progress)
        self._requests: dict[Place, Request] = {}
        self.records = 0
        """The number of records handled or failed since the last commit."""
        self.request_bytes = 0

    def begin(self, partitions: Iterable[Partition]) -> None:
        self.partitions.update({partition: Progress() for partition in partitions})

    def recreated(self, topic_ids: Mapping[str, str | None]) -> set[Partition]:
        """Note topic ids, None for a missing topic. Return the partitions of recreated topics."""
        anew = set()
        for partition, progress in self.partitions.items():
            topic_id = topic_ids.get(partition[0])
            progress.is_gone = topic_id is None and partition[0] in topic_ids
            if progress.topic_id is None:
                progress.topic_id = topic_id
            elif topic_id not in {None, progress.topic_id}:
                anew.add(partition)
        return anew

    def taken(self, place: Place, epoch: int = -1) -> bool:
        """Note that a record was read. Return False if it had been read before.

        The client library may repeat records after a rebalance.
        """
        progress = self.partitions[place.topic_partition]
        progress.given = place.offset
        if progress.position < 0:
            progress.committed = place.offset
        elif place.offset < progress.position:
            return False
        progress.undone.append(place.offset)
        progress.position, progress.epoch = place.offset + 1, max(progress.epoch, epoch)
        return True

    def handled(self, place: Place) -> None:
        self.records += 1
        self.partitions[place.topic_partition].done(place.offset)

    def failed(self, place: Place, request: Request) -> None:
        """Keep the retry request of a failed record. Once it is stored, the record is done."""
        self.records += 1
        self._requests[place] = request
        self.request_bytes += request.size_bytes

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        return list(self._requests.items())

    def stored(self, places: Iterable[Place]) -> None:
        for place in places:
            self.request_bytes -= self._requests.pop(place).size_bytes
            self.partitions[place.topic_partition].done(place.offset)

    def crowded(self, share: int = 1) -> set[Partition]:
        """Return the partitions that reach 1 / `share` of MOST_UNDONE or MOST_REPEATED."""
        return {
            partition
            for partition, one in self.partitions.items()
            if len(one.undone) >= MOST_UNDONE // share
            or one.position - one.end >= MOST_REPEATED // share
        }

    def positions(self) -> list[Place]:
        """Return the offsets to commit. Partitions with unchanged offsets are left out."""
        return [
            Place(*partition, progress.end)
            for partition, progress in self.partitions.items()
            if progress.end != progress.committed
        ]

    def settled(self, positions: Iterable[Place]) -> None:
        self.records = 0
        for place in positions:
            self.partitions[place.topic_partition].committed = place.offset

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions. Their next consumer reads the records again."""
        for partition in partitions:
            self.partitions.pop(partition, None)
        for place in [one for one in self._requests if one.topic_partition in partitions]:
            self.request_bytes -= self._requests.pop(place).size_bytes

    def clear(self) -> None:
        self.drop(list(self.partitions))
        self.records = 0

    def __bool__(self) -> bool:
        return bool(self._requests or self.positions())


def settle(
    consumer: Consumer, writer: IngressWriter, backlog: Backlog, look: Callable[[], None]
) -> None:
    """Store the retry requests, then commit the offsets.

    After a crash between the two steps, the failed records are read again. They may be retried
    twice.

    `look` checks that the topics still exist. It raises NoAnswer if no broker answers.
    Raises RetryNotStored, and the errors of `commit`.
    """
    unstored = _store(writer, backlog)
    try:
        look()
        progress = backlog.partitions
        positions = [p for p in backlog.positions() if not progress[p.topic_partition].is_gone]
        commit(consumer, positions)
        backlog.settled(positions)
    except (GroupMoved, NoAnswer, KafkaException):
        if not unstored:
            raise
    if unstored:
        place, error = min(unstored.items())
        raise RetryNotStored(
            f"{len(unstored)} failed records could not be sent back to the proxy. The first is "
            f"{place}: {error}. Their offsets are not committed. Remove the cause, then start the "
            "consumer again"
        )


def _store(writer: IngressWriter, backlog: Backlog) -> dict[Place, NotStored]:
    """Store the requests. Return the errors of requests that are not stored."""
    unstored: dict[Place, NotStored] = {}
    under_way: list[tuple[Place, Future[Receipt]]] = []
    for place, request in backlog.requests:
        try:
            under_way.append((place, writer.write(request)))
        except NotStored as error:
            unstored[place] = error
    for place, future in under_way:
        try:
            future.result()
        except NotStored as error:
            unstored[place] = error
    backlog.stored(place for place, _ in under_way if place not in unstored)
    return unstored


def commit(consumer: Consumer, positions: Sequence[Place]) -> None:
    """Commit offsets, and wait for the answer.

    Raises GroupMoved, NoAnswer or KafkaException.
    """
    if not positions:
        return
    offsets = [TopicPartition(*place) for place in positions]
    try:
        for answer in consumer.commit(offsets=offsets, asynchronous=False):
            if answer.error is not None:
                raise KafkaException(answer.error)
    except KafkaException as error:
        if error.args[0].code() in OTHER_GENERATION:
            raise GroupMoved(error.args[0].str()) from error
        if error.args[0].code() in PASSING:
            raise NoAnswer(error.args[0].str()) from error
        raise
