"""Between the loop, which must not wait, and the thread that makes spans."""

import threading
from collections import deque
from collections.abc import Iterable

from proxy.tracing.traced_records import TracedRecord


class RecordQueue:
    """Holds so many records, of so many bytes together, and takes no more."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._records: deque[TracedRecord] = deque()
        self._size_bytes = 0
        self._changed = threading.Condition()

    def put(self, records: Iterable[TracedRecord]) -> int:
        """How many of them had no room."""
        dropped = 0
        with self._changed:
            for record in records:
                size_bytes = self._size_bytes + record.size_bytes
                if len(self._records) < self._max_records and size_bytes <= self._max_bytes:
                    self._records.append(record)
                    self._size_bytes = size_bytes
                else:
                    dropped += 1
            self._changed.notify()
        return dropped

    def take(self, most: int, timeout_s: float) -> list[TracedRecord]:
        """The first of them, after a wait of at most `timeout_s` for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._records, timeout_s)
            taken = [self._records.popleft() for _ in range(min(most, len(self._records)))]
            self._size_bytes -= sum(record.size_bytes for record in taken)
        return taken
