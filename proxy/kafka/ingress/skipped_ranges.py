"""Ranges of the ingress that an operator has skipped, since no client can read them.

Each skipped offset is handed out as a record without content, which becomes a dead letter
(docs/operations/procedures.md#skip-a-batch-that-cannot-be-read).
"""

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from proxy.records.body import Headers
from proxy.records.headers import SKIPPED, UNREADABLE
from proxy.records.message import Message

NO_TIMESTAMP_MS = -1


class SkippedRange(NamedTuple):
    """The offsets from `base` to before `end`, of one partition."""

    base: int
    end: int


class SkippedRanges:
    """All of one ingress topic, by partition. It grows while others look at it, in one thread."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[int, int]] = {}

    def add(self, partition: int, skipped: SkippedRange) -> None:
        """Add a range. Two ranges with one base are the same batch: the first one counts."""
        self._ends.setdefault(partition, {}).setdefault(skipped.base, skipped.end)

    def holding(self, partition: int, offset: int) -> SkippedRange | None:
        """Return the range that holds the offset."""
        return self.first_in(partition, offset, offset)

    def first_in(self, partition: int, first: int, last: int) -> SkippedRange | None:
        """Return the first range with one of these offsets, `last` included."""
        ends = self._ends.get(partition)
        if not ends:
            return None
        found = (SkippedRange(*one) for one in ends.items() if one[0] <= last and first < one[1])
        return min(found, default=None)


class SkippedRecord:
    """A stand-in for a skipped record: a whole `proxy.records.message.Message`."""

    __slots__ = ("_offset", "_partition")

    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return None

    def headers(self) -> Headers:
        """One header. No fetched record can have the same: its value is compared by identity."""
        return [(UNREADABLE, SKIPPED)]

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, NO_TIMESTAMP_MS

    def error(self) -> None:
        return None


class Skipping:
    """Which skipped ranges reading has met, and the records that stand in their place.

    Records that are fetched of such a partition meanwhile are left out. They lie in the range, or
    behind it and are fetched again.
    """

    def __init__(self, ranges: SkippedRanges) -> None:
        self._ranges = ranges
        self._met: dict[int, SkippedRange] = {}

    @property
    def met(self) -> Sequence[int]:
        """The partitions in which a range is being skipped."""
        return list(self._met)

    def meet(self, partition: int, first: int, last: int) -> bool:
        """Return whether one of these offsets is skipped, and begin with the first such range."""
        found = self._ranges.first_in(partition, first, last)
        if found is not None:
            self._met.setdefault(partition, found)
        return found is not None

    def before(self, partition: int, records: list[Message]) -> list[Message]:
        """Return the fetched records before the range that is being skipped."""
        met = self._met.get(partition)
        return records if met is None else [one for one in records if one.offset() < met.base]

    def records(
        self, partition: int, next_offset: int, most: int
    ) -> tuple[list[SkippedRecord], int | None]:
        """Return the next skipped records. With the last ones comes the offset to fetch from."""
        base, end = self._met[partition]
        first = max(base, next_offset)
        stop = min(end, first + most)
        records = [SkippedRecord(partition, offset) for offset in range(first, stop)]
        if stop < end:
            return records, None
        del self._met[partition]
        return records, max(end, next_offset)

    def forget(self, partition: int) -> None:
        """Drop a partition that is owned no more."""
        self._met.pop(partition, None)
