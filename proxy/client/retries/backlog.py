"""What a consumer has handled, but whose offsets are not committed yet.

Pure bookkeeping. One rule: an offset is committed only when everything before it is either
handled or stored as a retry request.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from proxy.client.place import Place
from proxy.client.request import Request

Partition: TypeAlias = tuple[str, int]
"""(topic, partition)."""


class _Span(NamedTuple):
    first: int
    end: int
    records: int


class Backlog:
    """Handled records of each partition, in the order of their offsets, since the last commit."""

    def __init__(self) -> None:
        self._spans: dict[Partition, _Span] = {}
        self._requests: list[tuple[Place, Request]] = []
        self.request_bytes = 0

    def handled(self, place: Place) -> None:
        """The record there is done with."""
        topic, partition, offset = place
        span = self._spans.get((topic, partition), _Span(offset, offset, 0))
        self._spans[topic, partition] = _Span(span.first, offset + 1, span.records + 1)

    def failed(self, place: Place, request: Request) -> None:
        """The record there is done with once the request is stored."""
        self.handled(place)
        self._requests.append((place, request))
        self.request_bytes += request.size_bytes

    @property
    def records(self) -> int:
        """How many records wait for their commit."""
        return sum(span.records for span in self._spans.values())

    @property
    def requests(self) -> list[tuple[Place, Request]]:
        """What has to be stored before the offsets are committed."""
        return list(self._requests)

    def stored(self) -> None:
        """Every request is stored: only the offsets are left."""
        self._requests.clear()
        self.request_bytes = 0

    def offsets(self, unstored: Collection[Place] = ()) -> dict[Partition, int]:
        """The next offset of each partition, given the records whose requests are not stored.

        Partitions that cannot move are left out.
        """
        reached = {}
        for (topic, partition), (first, end, _) in self._spans.items():
            held = [place.offset for place in unstored if place[:2] == (topic, partition)]
            offset = min([end, *held])
            if offset > first:
                reached[topic, partition] = offset
        return reached

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that went to another consumer: it will get their records again."""
        gone = set(partitions)
        self._spans = {name: span for name, span in self._spans.items() if name not in gone}
        self._requests = [kept for kept in self._requests if kept[0][:2] not in gone]
        self.request_bytes = sum(request.size_bytes for _, request in self._requests)

    def clear(self) -> None:
        """Begin anew."""
        self._spans.clear()
        self.stored()

    def __bool__(self) -> bool:
        return bool(self._spans)
