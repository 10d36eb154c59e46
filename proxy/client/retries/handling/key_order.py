"""Which records may be handled now: those of one key one after the other."""

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from typing import NamedTuple

from proxy.client.place import Partition
from proxy.client.retries.received import Received


class _Numbered(NamedTuple):
    number: int
    record: Received


class KeyOrder:
    """Records that wait for a handler, in the order in which they were read.

    A key is taken from `next` to `done` of its record; records without a key hold up nobody.
    """

    def __init__(self) -> None:
        self._ready: list[_Numbered] = []
        self._behind: dict[bytes, deque[_Numbered]] = {}
        """By each key that is taken or ready: what comes after it."""
        self._added = 0
        self.records = 0
        self.size_bytes = 0

    def add(self, record: Received) -> None:
        """It waits, behind what waits already."""
        self._added += 1
        self._put(_Numbered(self._added, record))

    def next(self) -> Received | None:
        """The first record that may be handled now, which takes its key; None without any."""
        if not self._ready:
            return None
        record = heappop(self._ready).record
        self._count(record, -1)
        return record

    def done(self, record: Received) -> None:
        """The next record of its key may be handled."""
        if record.key is None:
            return
        behind = self._behind[record.key]
        if behind:
            heappush(self._ready, behind.popleft())
        else:
            del self._behind[record.key]

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget what waits of partitions that went to another consumer."""
        ready, behind = self._ready, self._behind
        waiting = sorted([*ready, *(one for queue in behind.values() for one in queue)])
        taken = behind.keys() - {one.record.key for one in ready}
        self._ready, self._behind = [], {key: deque() for key in taken}
        self.records = self.size_bytes = 0
        for one in waiting:
            if one.record.read_from.topic_partition not in partitions:
                self._put(one)

    def _put(self, one: _Numbered) -> None:
        key = one.record.key
        self._count(one.record, 1)
        if key is not None and key in self._behind:
            self._behind[key].append(one)
            return
        if key is not None:
            self._behind[key] = deque()
        heappush(self._ready, one)

    def _count(self, record: Received, sign: int) -> None:
        self.records += sign
        self.size_bytes += sign * record.size_bytes
