"""Where each partition is read on, so that no record is taken twice.

The client library gives records in order, and each once. Where it pauses partitions of itself, for
a rebalance, while a batch is being taken from it, it has gone back to before that batch, by all
signs (librdkafka 4686 was of the same kind).
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import lt

import structlog
from confluent_kafka import KafkaError, KafkaException

from proxy.records.message import Message

log = structlog.get_logger(__name__)


class ReadPositions:
    """The offset to be read next of each partition that is owned."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._read_to: dict[int, int] = {}
        """Of partitions that are read again: below it lies a record, which has to come first."""

    @property
    def offsets(self) -> Mapping[int, int]:
        """By partition, those that are owned."""
        return self._next

    def begin(self, starts: Mapping[int, int]) -> None:
        """These partitions are read from these offsets on."""
        self._next.update(starts)

    def rewind(self, starts: Mapping[int, int]) -> None:
        """These partitions are read again from these offsets on."""
        again = {p: self._next[p] for p, at in starts.items() if at < self._next[p]}
        self._read_to.update(again)
        self._next.update(starts)

    def end(self, partitions: Iterable[int]) -> None:
        """These are read no more."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._read_to.pop(partition, None)

    def reach(self, partition: int, end_offset: int) -> None:
        """Below it lies nothing that is not read: aborted records at most."""
        if partition in self._read_to:
            raise _skipped(partition, self._next[partition], end_offset)
        if partition in self._next:
            self._next[partition] = max(self._next[partition], end_offset)

    def fresh(self, partition: int, records: list[Message]) -> list[Message]:
        """The records, of one partition, without those that were given before."""
        next_offset = self._next.get(partition)
        if next_offset is None:
            return records
        offsets = [record.offset() for record in records]
        if offsets[0] < next_offset or not _is_rising(offsets):
            records = _left(partition, records, next_offset)
            offsets = [record.offset() for record in records]
        if offsets:
            if offsets[0] >= self._read_to.pop(partition, offsets[0] + 1):
                raise _skipped(partition, next_offset, offsets[0])
            self._next[partition] = offsets[-1] + 1
        return records


def _skipped(partition: int, wanted: int, given: int) -> KafkaException:
    why = f"partition {partition} was to be read again from {wanted} on, and came from {given} on"
    return KafkaException(KafkaError(KafkaError._INCONSISTENT, why))  # noqa: SLF001


def _is_rising(offsets: Sequence[int]) -> bool:
    return all(map(lt, offsets, offsets[1:]))


def _left(partition: int, records: Sequence[Message], next_offset: int) -> list[Message]:
    left: list[Message] = []
    at = next_offset
    for record in records:
        if record.offset() >= at:
            left.append(record)
            at = record.offset() + 1
    log.warning(
        "the client library gave records again: left out",
        partition=partition,
        count=len(records) - len(left),
        first=min(record.offset() for record in records),
        next_offset=next_offset,
    )
    return left
