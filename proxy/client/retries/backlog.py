"""What a consumer has read, but whose offsets are not committed yet.

Pure bookkeeping. One rule: an offset is committed only when everything before it is either
handled or stored as a retry request. A request is stored no sooner than its offset can be
committed: then both can be one transaction, and no failure is retried twice.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from proxy.client.place import Partition, Place
from proxy.client.request import Request
from proxy.client.retries.attempts import Attempt, Attempts


@dataclass(slots=True)
class _Lane:
    """One partition: `first` to `end` is done with and can be settled, `read` is behind that.

    `read` has for each record, in the order of offsets, whether it is done, and its request.
    """

    first: int
    end: int
    records: int = 0
    read: OrderedDict[int, tuple[bool, Request | None]] = field(default_factory=OrderedDict)


class Backlog:
    """Records of each partition since the last commit; they may end in any order."""

    def __init__(self) -> None:
        self._lanes: dict[Partition, _Lane] = {}
        self._requests: list[tuple[Place, Request]] = []
        self.attempts = Attempts()
        """Of records that are tried again where they lie."""
        self.request_bytes = 0
        """Of all requests that are not stored, those too that have to wait for records before."""

    def taken(self, place: Place) -> bool:
        """The record there has been read. False when it has been before: the client library can
        give a record twice after a rebalance.
        """
        offset = place.offset
        lane = self._lanes.setdefault(place.topic_partition, _Lane(offset, offset))
        if offset < lane.end or (lane.read and offset <= next(reversed(lane.read))):
            return False
        lane.read[offset] = (False, None)
        return True

    def handled(self, place: Place) -> None:
        """The record there is done with."""
        self._done(place, None)

    def failed(self, place: Place, request: Request) -> None:
        """The record there is done with once the request is stored."""
        self.request_bytes += request.size_bytes
        self._done(place, request)

    def waits(self, place: Place, attempt: Attempt) -> None:
        """The record there is tried again: that it has failed is to be committed before that."""
        self.attempts.note(place, attempt)

    @property
    def records(self) -> int:
        """How many records can be settled."""
        return sum(lane.records for lane in self._lanes.values())

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        """What has to be stored before the offsets are committed."""
        return list(self._requests)

    def crowded(self, most: int) -> set[Partition]:
        """The partitions with so many records, or more, that cannot be settled yet."""
        return {name for name, lane in self._lanes.items() if len(lane.read) >= most}

    def stored(self) -> None:
        """Every request is stored: only the offsets are left."""
        self.request_bytes -= sum(request.size_bytes for _, request in self._requests)
        self._requests.clear()

    def offsets(self, unstored: Collection[Place] = ()) -> dict[Partition, int]:
        """The next offset of each partition, given the records whose requests are not stored.

        Partitions that cannot move are left out.
        """
        reached = {}
        for partition, lane in self._lanes.items():
            held = [place.offset for place in unstored if place.topic_partition == partition]
            offset = min([lane.end, *held])
            if offset > lane.first or partition in self.attempts.unsaved:
                reached[partition] = offset
        return reached

    def settled(self) -> None:
        """Requests are stored, offsets are committed: what was read since is left."""
        self.stored()
        self.attempts.saved({name: lane.end for name, lane in self._lanes.items()})
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane.read}
        for lane in self._lanes.values():
            lane.first, lane.records = lane.end, 0

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another consumer: it will get their records again."""
        self.attempts.drop(partitions)
        for partition in partitions:
            lane = self._lanes.pop(partition, None)
            for _, request in lane.read.values() if lane else ():
                self.request_bytes -= request.size_bytes if request else 0
            gone = [kept for kept in self._requests if kept[0].topic_partition == partition]
            self.request_bytes -= sum(request.size_bytes for _, request in gone)
            self._requests = [kept for kept in self._requests if kept not in gone]

    def clear(self) -> None:
        """Forget everything."""
        self._lanes.clear()
        self._requests.clear()
        self.attempts.clear()
        self.request_bytes = 0

    def __bool__(self) -> bool:
        has_done = any(lane.records for lane in self._lanes.values())
        return has_done or bool(self.attempts.unsaved)

    def _done(self, place: Place, request: Request | None) -> None:
        self.attempts.done(place)
        lane = self._lanes[place.topic_partition]
        lane.read[place.offset] = (True, request)
        while lane.read:
            offset, (is_done, kept) = next(iter(lane.read.items()))
            if not is_done:
                return
            del lane.read[offset]
            lane.end, lane.records = offset + 1, lane.records + 1
            if kept is not None:
                self._requests.append((place._replace(offset=offset), kept))
