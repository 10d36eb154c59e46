"""Who judges a record: each policy from its first offset on (DESIGN 5.3)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from proxy.records.message import Message
from proxy.records.position import LAST_OFFSET
from proxy.requests.parsed import Fate, Read, unfolded
from proxy.requests.request_reader import RequestReader


class Judges:
    """Request readers by the first offset that each judges."""

    def __init__(self, readers: Sequence[tuple[int, RequestReader]]) -> None:
        self._readers = list(readers)

    def at(self, offset: int) -> tuple[Callable[..., Read], int]:
        """What reads the record at `offset`, and the first offset that is another's.

        See `RequestReader.read_folded`."""
        index = max(bisect_right(self._readers, offset, key=lambda first: first[0]) - 1, 0)
        until = self._readers[index + 1][0] if index + 1 < len(self._readers) else LAST_OFFSET
        return self._readers[index][1].read_folded, until

    def judge(self, message: Message) -> Fate:
        """One record's fate, which is the same whenever it is asked for."""
        offset = message.offset()
        headers, timestamp_ms = message.headers() or [], message.timestamp()[1]
        read, _until = self.at(offset)
        return unfolded(read(headers, message.key(), message.value(), timestamp_ms, offset))
