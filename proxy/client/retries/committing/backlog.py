"""The records that a consumer has read, and the offsets that it may commit.

Pure bookkeeping. One rule: an offset is committed only when every record before it is handled, or
its retry request is stored.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from proxy.client.place import Partition, Place
from proxy.client.request import Request

MOST_UNDONE: Final = 1_000
"""Records of a partition that are read and not done."""
MOST_REPEATED: Final = 10_000
"""Offsets of a partition behind its first record that is not done: a crash repeats them all."""


class Position(NamedTuple):
    """An offset to be committed."""

    partition: Partition
    offset: int


class Progress:
    """The records of one partition, read from the offset `first` on. They end in any order.

    Done records take no memory.
    """

    def __init__(self, first: int) -> None:
        self.committed = first
        self.position = first
        """The offset behind all records that were read."""
        self.epoch = -1
        """The highest leader epoch of these records."""
        self.given = first - 1
        """The offset that the client library gave last: it falls when it reads back."""
        self._undone: list[int] = []

    @property
    def undone(self) -> int:
        """How many records are read and not done."""
        return len(self._undone)

    @property
    def end(self) -> int:
        """The offset that may be committed."""
        return self._undone[0] if self._undone else self.position

    def take(self, offset: int, epoch: int) -> bool:
        """Note that the record there was read. False if it had been read before."""
        self.given = offset
        if offset < self.position:
            return False
        self._undone.append(offset)
        self.position, self.epoch = offset + 1, max(self.epoch, epoch)
        return True

    def done(self, offset: int) -> None:
        """The record there is done."""
        place = bisect_left(self._undone, offset)
        assert self._undone[place] == offset
        del self._undone[place]


class Backlog:
    """The records of all partitions, and the retry requests that are not stored."""

    def __init__(self) -> None:
        self._progress: dict[Partition, Progress] = {}
        self._requests: dict[Place, Request] = {}
        self.records = 0
        """How many records have ended since the last commit."""
        self.request_bytes = 0
        """The size of the requests that are not stored."""

    def taken(self, place: Place, epoch: int = -1) -> bool:
        """Note that the record there was read. False if it had been read before: the client
        library can give a record twice after a rebalance.
        """
        progress = self._progress.setdefault(place.topic_partition, Progress(place.offset))
        return progress.take(place.offset, epoch)

    def reads_back(self, place: Place) -> bool:
        """Whether the client library went back in the partition, to this place."""
        progress = self._progress.get(place.topic_partition)
        return progress is not None and place.offset <= progress.given

    def is_rewritten(self, place: Place, epoch: int) -> bool:
        """Whether another record was read there before: the log was cut off and has grown again.

        Records that are written after a cut have a higher leader epoch than all before it.
        """
        progress = self._progress.get(place.topic_partition)
        return progress is not None and place.offset < progress.position and epoch > progress.epoch

    def end(self, partition: Partition) -> int:
        """The offset of the partition's first record that is not done."""
        return self._progress[partition].end

    def handled(self, place: Place) -> None:
        """The record there is done."""
        self.records += 1
        self._progress[place.topic_partition].done(place.offset)

    def failed(self, place: Place, request: Request) -> None:
        """The record there is done once the request is stored."""
        self.records += 1
        self._requests[place] = request
        self.request_bytes += request.size_bytes

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        """All requests that are not stored."""
        return list(self._requests.items())

    def stored(self, places: Iterable[Place]) -> None:
        """The requests of these records are stored."""
        for place in places:
            self.request_bytes -= self._requests.pop(place).size_bytes
            self._progress[place.topic_partition].done(place.offset)

    def crowded(self, share: int = 1) -> set[Partition]:
        """The partitions to pause: too many records are not done, or a crash would repeat too many.

        `share` divides both limits.
        """
        return {
            name
            for name, one in self._progress.items()
            if one.undone >= MOST_UNDONE // share
            or one.position - one.end >= MOST_REPEATED // share
        }

    def positions(self) -> list[Position]:
        """The offsets to be committed. Partitions without news are left out."""
        return [
            Position(partition, progress.end)
            for partition, progress in self._progress.items()
            if progress.end != progress.committed
        ]

    def settled(self, positions: Iterable[Position]) -> None:
        """These positions are committed."""
        self.records = 0
        for partition, offset in positions:
            self._progress[partition].committed = offset

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another consumer. It reads their records again."""
        for partition in partitions:
            self._progress.pop(partition, None)
        for place in [one for one in self._requests if one.topic_partition in partitions]:
            self.request_bytes -= self._requests.pop(place).size_bytes

    def clear(self) -> None:
        """Forget everything."""
        self.drop(list(self._progress))
        self.records = 0

    def __bool__(self) -> bool:
        """Whether there is anything to store or to commit."""
        return bool(self._requests or self.positions())
