"""Which records may be handled now: those of one key one after the other."""

from collections import deque
from collections.abc import Callable, Collection, Hashable
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from proxy.client.place import Partition
from proxy.client.retries.received import Received

KeyOf: TypeAlias = Callable[[Received], Hashable]
"""What is handled one after the other has the same; None: beside everything."""


def by_key(record: Received) -> Hashable:
    """Records without a key hold up nobody."""
    return record.key


def by_key_or_partition(record: Received) -> Hashable:
    """Records without a key have the order of their partition, the only one that Kafka knows."""
    return record.read_from.topic_partition if record.key is None else record.key


class _Waiting(NamedTuple):
    number: int
    record: Received
    due_s: float


class KeyOrder:
    """Records that wait for a handler, in the order in which they were read.

    A key is taken from `next` to `done` of its record. A record that is suspended keeps its key
    until it is due, and goes before all others then. What is behind a key is held: none of it
    counts as waiting for a handler (`records`, `size_bytes`) before its own turn, so that one key
    does not keep others from being read.
    """

    def __init__(self, key_of: KeyOf = by_key) -> None:
        self._key_of = key_of
        self._ready: list[_Waiting] = []
        self._behind: dict[Hashable, deque[_Waiting]] = {}
        """By each key that is taken, ready or suspended: what comes after it."""
        self._suspended: dict[Hashable, _Waiting] = {}
        self._added = self._put_first = 0
        self.records = self.size_bytes = 0
        self.behind = 0
        """Records that are held and do not wait for one that is suspended."""
        self.held_bytes: dict[Partition, int] = {}
        """Of what is suspended or behind a key."""

    def add(self, record: Received) -> None:
        """It waits, behind what waits already."""
        self._added += 1
        self._put(_Waiting(self._added, record, 0.0))

    def next(self) -> Received | None:
        """The first record that may be handled now, which takes its key; None without any."""
        if not self._ready:
            return None
        one = heappop(self._ready)
        self._count(one, -1)
        return one.record

    def done(self, record: Received) -> None:
        """The next record of its key may be handled."""
        key = self._key_of(record)
        if key is None:
            return
        behind = self._behind[key]
        if not behind:
            del self._behind[key]
            return
        self.behind -= 1
        self._let_wait(behind.popleft())

    def suspend(self, record: Received, due_s: float) -> None:
        """The record, which has taken its key, is to be handled again when it is due."""
        self._put_first -= 1
        self._suspend(_Waiting(self._put_first, record, due_s))

    def resume(self, now_s: float) -> None:
        """What is due may be handled."""
        for key, one in list(self._suspended.items()):
            if one.due_s <= now_s:
                del self._suspended[key]
                self.behind += len(self._behind[key])
                self._let_wait(one)

    def first_due_s(self) -> float | None:
        """When the first suspended record is due; None without any."""
        return min((one.due_s for one in self._suspended.values()), default=None)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget what waits or is suspended of partitions that went to another consumer."""
        ready, behind, suspended = self._ready, self._behind, self._suspended
        waiting = sorted([*ready, *(one for queue in behind.values() for one in queue)])
        gone = {key for key, one in suspended.items() if _partition_of(one) in partitions}
        taken = behind.keys() - {self._key_of(one.record) for one in ready} - gone
        self._ready, self._behind = [], {key: deque() for key in taken}
        self._suspended = {}
        self.records = self.size_bytes = self.behind = 0
        self.held_bytes.clear()
        for key in suspended.keys() - gone:
            self._suspend(suspended[key])
        for one in waiting:
            if _partition_of(one) not in partitions:
                self._put(one)

    def _put(self, one: _Waiting) -> None:
        key = self._key_of(one.record)
        if key is not None and key in self._behind:
            self._behind[key].append(one)
            self.behind += key not in self._suspended
            self._hold(one, 1)
            return
        self._count(one, 1)
        if key is not None:
            self._behind[key] = deque()
        heappush(self._ready, one)

    def _suspend(self, one: _Waiting) -> None:
        key = self._key_of(one.record)
        self._suspended[key] = one
        self.behind -= len(self._behind[key])
        self._hold(one, 1)

    def _let_wait(self, one: _Waiting) -> None:
        self._hold(one, -1)
        self._count(one, 1)
        heappush(self._ready, one)

    def _count(self, one: _Waiting, sign: int) -> None:
        self.records += sign
        self.size_bytes += sign * one.record.size_bytes

    def _hold(self, one: _Waiting, sign: int) -> None:
        partition = _partition_of(one)
        held_bytes = self.held_bytes.get(partition, 0) + sign * one.record.size_bytes
        if held_bytes:
            self.held_bytes[partition] = held_bytes
        else:
            self.held_bytes.pop(partition, None)


def _partition_of(one: _Waiting) -> Partition:
    return one.record.read_from.topic_partition
