"""Commits: an offset only when all records before it are handled or stored for a retry."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_delay.errors import NotStored, RetryNotStored
from kafka_delay.ingress_writer import IngressWriter
from kafka_delay.kafka import Partition, Place
from kafka_delay.request import Receipt, Request

MOST_UNDONE: Final = 1_000
"""Records of a partition that were read and are not done."""
MOST_REPEATED: Final = 10_000
"""Offsets behind a partition's first undone record, which a crash repeats."""
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
"""Errors that pass by themselves."""

MayCommit = Callable[[], Collection[Partition]]
"""Called before a commit. Returns the partitions to leave out. Raises NoAnswer."""


class GroupMoved(Exception):
    """Nothing was committed because of a rebalance. Poll and settle again."""


class NoAnswer(Exception):
    """No broker answered. Settle again later."""


class Progress:
    """The records of one partition from the offset `first` on."""

    def __init__(self, first: int) -> None:
        self.committed = first
        self.position = first
        """The offset after all records that were read."""
        self.epoch = -1
        """Their highest leader epoch."""
        self.given = first - 1
        """The last offset from the client library. It falls when the library reads back."""
        self.undone: list[int] = []
        """Offsets of undone records, in order."""

    @property
    def end(self) -> int:
        return self.undone[0] if self.undone else self.position

    def done(self, offset: int) -> None:
        place = bisect_left(self.undone, offset)
        assert self.undone[place] == offset
        del self.undone[place]


class Backlog:
    """The records of all partitions, and the retry requests to store."""

    def __init__(self) -> None:
        self._progress: dict[Partition, Progress] = {}
        self._requests: dict[Place, Request] = {}
        self.records = 0
        """Records that have ended since the last commit."""
        self.request_bytes = 0

    def taken(self, place: Place, epoch: int = -1) -> bool:
        """Note that a record was read. Return False for a repetition, as after rebalances."""
        progress = self._progress.setdefault(place.topic_partition, Progress(place.offset))
        progress.given = place.offset
        if place.offset < progress.position:
            return False
        progress.undone.append(place.offset)
        progress.position, progress.epoch = place.offset + 1, max(progress.epoch, epoch)
        return True

    def reads_back(self, place: Place) -> bool:
        """Return whether the client library went back to this place."""
        progress = self._progress.get(place.topic_partition)
        return progress is not None and place.offset <= progress.given

    def is_rewritten(self, place: Place, epoch: int) -> bool:
        """Return whether the log was cut and has grown here, by a higher leader epoch."""
        progress = self._progress.get(place.topic_partition)
        return progress is not None and place.offset < progress.position and epoch > progress.epoch

    def end(self, partition: Partition) -> int:
        return self._progress[partition].end

    def handled(self, place: Place) -> None:
        self.records += 1
        self._progress[place.topic_partition].done(place.offset)

    def failed(self, place: Place, request: Request) -> None:
        """Note that the record is done once this request is stored."""
        self.records += 1
        self._requests[place] = request
        self.request_bytes += request.size_bytes

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        return list(self._requests.items())

    def stored(self, places: Iterable[Place]) -> None:
        for place in places:
            self.request_bytes -= self._requests.pop(place).size_bytes
            self._progress[place.topic_partition].done(place.offset)

    def crowded(self, share: int = 1) -> set[Partition]:
        """Return the partitions to pause. `share` divides the limits."""
        return {
            partition
            for partition, one in self._progress.items()
            if len(one.undone) >= MOST_UNDONE // share
            or one.position - one.end >= MOST_REPEATED // share
        }

    def positions(self) -> list[Place]:
        """Return the offsets to commit, only of partitions with news."""
        return [
            Place(*partition, progress.end)
            for partition, progress in self._progress.items()
            if progress.end != progress.committed
        ]

    def settled(self, positions: Iterable[Place]) -> None:
        self.records = 0
        for place in positions:
            self._progress[place.topic_partition].committed = place.offset

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions of another consumer, which reads their records again."""
        for partition in partitions:
            self._progress.pop(partition, None)
        for place in [one for one in self._requests if one.topic_partition in partitions]:
            self.request_bytes -= self._requests.pop(place).size_bytes

    def clear(self) -> None:
        self.drop(list(self._progress))
        self.records = 0

    def __bool__(self) -> bool:
        return bool(self._requests or self.positions())


class Settlement:
    """Storing of requests, then of the offsets behind them. A crash in between repeats both."""

    def __init__(self, consumer: Consumer, writer: IngressWriter) -> None:
        self._consumer, self._writer = consumer, writer

    def settle(self, backlog: Backlog, may_commit: MayCommit = tuple) -> None:
        """Store the requests and commit the offsets."""
        unstored = self._store(backlog)
        if unstored:
            with suppress(GroupMoved, NoAnswer, KafkaException):
                self._commit(backlog, may_commit)
            place, error = min(unstored.items())
            raise RetryNotStored(
                f"{len(unstored)} failed records could not be handed to the proxy, first {place}: "
                f"{error}; their offsets are not committed: start the consumer again when the "
                "cause is gone"
            )
        self._commit(backlog, may_commit)

    def _commit(self, backlog: Backlog, may_commit: MayCommit) -> None:
        left_out = may_commit()
        positions = [one for one in backlog.positions() if one.topic_partition not in left_out]
        commit(self._consumer, positions)
        backlog.settled(positions)

    def _store(self, backlog: Backlog) -> dict[Place, NotStored]:
        """Return the errors of requests that are not stored."""
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


def commit(consumer: Consumer, positions: Sequence[Place]) -> None:
    """Commit and wait for the answer. Raises GroupMoved, NoAnswer or KafkaException."""
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
