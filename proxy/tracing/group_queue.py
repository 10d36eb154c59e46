"""Between the loop, which must not wait, and the thread that makes spans."""

import threading
from collections import deque
from collections.abc import Iterable

from proxy.tracing.traced_records import TracedGroup


class GroupQueue:
    """Holds so many records, of so many bytes together, and takes no more."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._groups: deque[TracedGroup] = deque()
        self._records = self._size_bytes = 0
        self._changed = threading.Condition()

    def put(self, group: TracedGroup) -> int:
        """How many of its records had no room."""
        came = len(group.records)
        with self._changed:
            kept = group._replace(records=group.records[: self._max_records - self._records])
            size_bytes = kept.size_bytes
            if not kept.records or self._size_bytes + size_bytes > self._max_bytes:
                return came
            self._groups.append(kept)
            self._records += len(kept.records)
            self._size_bytes += size_bytes
            self._changed.notify()
        return came - len(kept.records)

    def take(self, most: int, timeout_s: float) -> list[TracedGroup]:
        """The first groups, of at most so many records, after a wait for one if need be."""
        taken: list[TracedGroup] = []
        with self._changed:
            self._changed.wait_for(lambda: self._groups, timeout_s)
            while self._groups and most > 0:
                group = self._groups.popleft()
                if len(group.records) > most:
                    self._groups.appendleft(group._replace(records=group.records[most:]))
                    group = group._replace(records=group.records[:most])
                taken.append(group)
                most -= len(group.records)
            self._records -= count_of(taken)
            self._size_bytes -= sum(group.size_bytes for group in taken)
        return taken


def count_of(groups: Iterable[TracedGroup]) -> int:
    """How many records these have together."""
    return sum(len(group.records) for group in groups)
