"""What a consumer has read, and what of that its next commit has to say.

Pure bookkeeping. One rule: a record is committed as done, by its offset or in the metadata, only
when it is handled or its retry request is stored.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from proxy.client.place import Partition, Place
from proxy.client.request import Request
from proxy.client.retries.committing.attempts import Attempts
from proxy.client.retries.committing.offset_metadata import (
    MOST_CHARACTERS,
    Attempt,
    Remembered,
    read,
    written,
)
from proxy.client.retries.committing.progress import Progress, Range

LEAST_CHARACTERS: Final = 250
"""A broker that does not take so many gets none."""
MOST_REPEATED: Final = 1_000
"""Of a partition's offsets, where not all that is done behind the first undone can be committed."""

log = logging.getLogger("proxy.client")


class Position(NamedTuple):
    """What is to be committed of a partition."""

    partition: Partition
    offset: int
    metadata: str | None


class Backlog:
    """Records of each partition since the last commit; they may end in any order.

    `cluster` is the broker's id of it: what another cluster's group has committed is not ours.
    """

    def __init__(self, cluster: str = "-") -> None:
        self._cluster = cluster
        self._progress: dict[Partition, Progress] = {}
        self._remembered: dict[Partition, tuple[int, list[Range]]] = {}
        """Of partitions not read yet: the committed offset, and what is done behind it."""
        self._most_characters = MOST_CHARACTERS
        self.attempts = Attempts()
        """Of records that are tried again where they lie."""

    def restore(
        self, partition: Partition, offset: int, metadata: str | None, log_end: int | None
    ) -> None:
        """Go on from what was committed. What somebody else has put there is left alone; so is what
        lies behind the log's end: it has lost records, and others will have their offsets. While
        nobody knows that end (None), failures count, and nothing is left out as done.
        """
        self.drop([partition])
        remembered = read(self._cluster, offset, metadata)
        if remembered is not None and log_end is None and remembered.done:
            log.warning(
                "%s: it is not known where the log ends, so what was done behind offset %s is read "
                "again: records may be handled a second time",
                partition,
                offset,
            )
            remembered = remembered._replace(done=[])
        if remembered is not None and all(end <= (log_end or 0) for _, end in remembered.done):
            self.attempts.restore(partition, remembered.waiting)
            self._remembered[partition] = offset, remembered.done
        elif metadata:
            log.warning(
                "%s: what is committed beside offset %s was not written by this client for this "
                "log, and is ignored: %.100r",
                partition,
                offset,
                metadata,
            )

    def taken(self, place: Place) -> bool:
        """The record there has been read. False when it has been before (the client library can
        give a record twice after a rebalance), or when a commit says that it is done.
        """
        partition, offset = place.topic_partition, place.offset
        if partition not in self._progress:
            committed, done = self._remembered.pop(partition, (0, []))
            is_same_log = committed <= offset
            self._progress[partition] = Progress(offset, done if is_same_log else [])
        return self._progress[partition].take(offset)

    def position(self, partition: Partition) -> int:
        """Behind all that was read of it, and what follows that and is done."""
        return self._progress[partition].position

    def handled(self, place: Place) -> None:
        """The record there is done with."""
        self._progress[place.topic_partition].ended += 1
        self._done(place)

    def failed(self, place: Place, request: Request) -> None:
        """The record there is done with once the request is stored."""
        self._progress[place.topic_partition].failed(place.offset, request)

    def waits(self, place: Place, attempt: Attempt) -> None:
        """The record there is tried again: that it has failed is to be committed before that."""
        self.attempts.note(place, attempt)

    @property
    def records(self) -> int:
        """How many have ended since the last commit."""
        return sum(progress.ended for progress in self._progress.values())

    @property
    def new_request_bytes(self) -> int:
        """Of the requests of those that have failed since the last commit."""
        return sum(progress.new_request_bytes for progress in self._progress.values())

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        """All that are not stored."""
        return [
            (Place(*partition, offset), request)
            for partition, progress in self._progress.items()
            for offset, request in progress.requests.items()
        ]

    @property
    def requests_before_end(self) -> list[tuple[Place, Request]]:
        """Those alone with which the offset passes their record."""
        ends = {name: one.end(is_stored=True) for name, one in self._progress.items()}
        return [
            (place, request)
            for place, request in self.requests
            if place.offset < ends[place.topic_partition]
        ]

    def crowded(self, most: int, most_request_bytes: int) -> set[Partition]:
        """The partitions with so many records, or more, that are not done, or so much in requests
        that are not stored, or of which more is done in between than can be committed.
        """
        return {
            name
            for name, one in self._progress.items()
            if one.undone >= most or one.request_bytes >= most_request_bytes or one.is_too_much
        }

    def stored(self, places: Iterable[Place]) -> None:
        """The requests of these records are stored."""
        for place in places:
            self._done(place)

    def positions(self, *, is_stored: bool = False) -> list[Position]:
        """What a commit has to say now, or once `requests_before_end` are stored: for one
        transaction with them. Partitions of which there is nothing new are left out.
        """
        return [
            self._position(partition, progress, progress.end(is_stored=is_stored))
            for partition, progress in self._progress.items()
            if progress.ended
            or progress.end() > progress.committed
            or partition in self.attempts.unsaved
        ]

    def shorten(self) -> bool:
        """The broker does not take so much metadata: half of it. False when there is none left."""
        is_any_left = self._most_characters > 0
        half = self._most_characters // 2
        self._most_characters = half if half >= LEAST_CHARACTERS else 0
        log.warning(
            "the broker takes less than 4,096 bytes beside an offset (offset.metadata.max.bytes): "
            "%s are used, so that more records may come again after a restart",
            self._most_characters,
        )
        return is_any_left

    def settled(self) -> None:
        """The positions are committed: what was read since is left."""
        for progress in self._progress.values():
            progress.settled()
        self.attempts.saved({name: one.committed for name, one in self._progress.items()})
        self._progress = {name: one for name, one in self._progress.items() if not one.is_over}

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another consumer: it will get their records again."""
        self.attempts.drop(partitions)
        for partition in partitions:
            self._remembered.pop(partition, None)
            self._progress.pop(partition, None)

    def clear(self) -> None:
        """Forget everything."""
        self.drop([*self._progress, *self._remembered])
        self.attempts.clear()

    def __bool__(self) -> bool:
        return self.records > 0 or bool(self.attempts.unsaved)

    def _position(self, partition: Partition, progress: Progress, end: int) -> Position:
        remembered = Remembered(
            self.attempts.behind(partition, end), list(progress.done_behind(end))
        )
        text, has_all_done = written(self._cluster, end, remembered, self._most_characters)
        progress.is_too_much = not has_all_done and progress.position - end >= MOST_REPEATED
        return Position(partition, end, text)

    def _done(self, place: Place) -> None:
        self.attempts.done(place)
        self._progress[place.topic_partition].done(place.offset)
