"""The broker's answers about target topics, and the sizes of records there."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from proxy.dispatch.partitioning import ANY, partition_of
from proxy.protocol.body import GONE, Headers
from proxy.protocol.outcomes import Rejection

RECORD_BATCH_BYTES: Final = 61
"""Size of a record batch without its records."""
IN_COMPANY_BYTES: Final = 10
"""A later record of a batch may take this many bytes more, for its deltas of offset and time."""
USUAL_LIMIT_BYTES: Final = 1_048_588
"""The default of max.message.bytes."""
UNTIMELY: Final = "time-refused"
"""Code of a refused timestamp, which means a wrong clock. No dead letter has this code."""
NONE: Final = -1
"""Partition count of a topic that cannot be written to."""


def record_batch_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size of the record batch that holds this record alone, uncompressed."""
    size_bytes = 3 + _sized(key) + _sized(value) + _varint_bytes(len(headers))
    size_bytes += sum(_sized(name.encode()) + _sized(content) for name, content in headers)
    return RECORD_BATCH_BYTES + _varint_bytes(size_bytes) + size_bytes


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(number: int) -> int:
    """Return the length of a zigzag varint: 6 bits in the first byte, 7 in each other one."""
    return (number.bit_length() + 7) // 7


class TopicRules(NamedTuple):
    """A topic's largest record batch, and whether its records need keys."""

    max_message_bytes: int
    needs_key: bool


class TriedSizes(NamedTuple):
    """Sizes found by trying, for a topic whose rules the proxy has no right to read."""

    batch_bytes: int
    """Half of the smallest record batch that was refused."""
    refused_bytes: int | None = None
    """The smallest record that was refused alone."""


class KnownTargets:
    """Topics with their partition counts, and why some cannot be written to."""

    def __init__(self, *, is_compressing: bool = False) -> None:
        self.partitions: dict[str, int] = {}
        self.rules: dict[str, TopicRules] = {}
        """Rules of topics that have refused a record batch."""
        self.tried: dict[str, TriedSizes] = {}
        """Sizes for topics that have refused a record batch and whose rules may not be read."""
        self.unavailable: dict[str, Mapping[int, str]] = {}
        """By topic, the partitions that cannot be written to now, and why. Often empty."""
        self.untimely: dict[str, Rejection] = {}
        """Topics that have refused the timestamps of records, and why."""
        self.until_ms: dict[str, int] = {}
        """Epoch ms until which the broker's answer about a topic is valid."""
        self.are_awaited = False
        """Whether the broker was asked for newer answers that have not come yet."""
        self._refusals: dict[str, Rejection] = {}
        self._is_compressing = is_compressing

    def learn(self, topic: str, partitions: int, refusal: Rejection | None) -> None:
        """Note the broker's newest answer. `refusal` says why the topic cannot be written to."""
        self.rules.pop(topic, None)
        self.partitions[topic] = NONE if refusal else partitions
        if refusal:
            self._refusals[topic] = refusal
        else:
            self._refusals.pop(topic, None)

    def learn_unavailable(self, topic: str, unavailable: Mapping[int, str]) -> None:
        if unavailable:
            self.unavailable[topic] = unavailable
        else:
            self.unavailable.pop(topic, None)

    def clear(self) -> None:
        for memory in (self.partitions, self.rules, self.tried, self.unavailable, self._refusals):
            memory.clear()
        self.untimely.clear()
        self.until_ms.clear()

    def are_current(self, topics: Iterable[str], now_ms: int) -> bool:
        """Return whether the answers about these topics are still valid."""
        if self.are_awaited or self.untimely or self.tried:
            return False
        until_ms = self.until_ms
        return all(until_ms.get(topic, 0) > now_ms for topic in topics)

    def shrink_batches(self, topic: str, refused_bytes: int) -> None:
        """Halve the limit of record batches. Refused batches had at most `refused_bytes`."""
        tried = self.tried.get(topic, TriedSizes(min(refused_bytes, USUAL_LIMIT_BYTES)))
        self.tried[topic] = tried._replace(batch_bytes=tried.batch_bytes // 2)

    def refuse_from(self, topic: str, size_bytes: int) -> None:
        """Note that a record of this size was refused alone. Larger records are refused, too."""
        tried = self.tried.get(topic)
        if tried is not None and size_bytes < (tried.refused_bytes or size_bytes + 1):
            self.tried[topic] = tried._replace(refused_bytes=size_bytes)

    def try_sizes_again(self, topic: str) -> None:
        """Allow larger records again. Record batches stay small, which does no harm."""
        self.tried[topic] = self.tried[topic]._replace(refused_bytes=None)

    def batch_limit_bytes(self, topic: str) -> int | None:
        """Return the largest record batch for the topic. None: no batch has been refused yet."""
        if topic in self.rules:
            return self.rules[topic].max_message_bytes
        return self.tried[topic].batch_bytes if topic in self.tried else None

    def takes(self, topic: str) -> bool:
        """Return whether the topic is known, and each of its partitions can be written to."""
        is_known = self.partitions.get(topic, NONE) != NONE
        return is_known and topic not in self.unavailable and topic not in self.untimely

    def take_all(self, topics: Iterable[str]) -> bool:
        """Return whether each topic takes records, and none has refused a record batch."""
        if not (self.unavailable or self.untimely or self.rules or self.tried):
            partitions = self.partitions
            return all(partitions.get(topic, NONE) != NONE for topic in topics)
        return all(self.takes(topic) and self.batch_limit_bytes(topic) is None for topic in topics)

    def refusal(self, topic: str) -> Rejection | None:
        return self._refusals.get(topic)

    def refusal_at(self, target: str, partition: int, key: bytes | None) -> Rejection | None:
        """Return why nothing can be delivered to this partition of the target, or None."""
        count = self.partitions.get(target, NONE)
        if partition < count:
            unavailable = self._unavailable_at(target, partition, key, count)
            return unavailable or self.untimely.get(target)
        if partition == GONE:
            return Rejection(
                "body-gone",
                f"the record for {target} was deleted from the ingress before it was read back: "
                "raise the topic's retention.ms, or set `bodies: local`",
            )
        return self._refusals.get(target) or Rejection(
            "partition-bad",
            f"timer-partition is {partition}, but {target} has partitions 0 to {count - 1}",
        )

    def partition_at(self, target: str, partition: int, key: bytes | None, turn: int) -> int:
        """Return the partition to produce to. Records without a key skip unavailable partitions."""
        unavailable = self.unavailable.get(target)
        if not unavailable or partition != ANY or key is not None:
            return partition
        available = [n for n in range(self.partitions[target]) if n not in unavailable]
        return available[turn % len(available)] if available else partition

    def _unavailable_at(
        self, target: str, partition: int, key: bytes | None, count: int
    ) -> Rejection | None:
        unavailable = self.unavailable.get(target)
        if not unavailable:
            return None
        if partition == ANY and key is not None:
            partition = partition_of(key, count)
        elif partition == ANY and len(unavailable) == count:
            partition = next(iter(unavailable))
        why = unavailable.get(partition)
        return Rejection("partition-unavailable", f"{target}/{partition} {why}") if why else None

    def exceeding_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int | None:
        """Return the record's size if it is known to exceed the limit. If records are compressed,
        only a try can show this."""
        refused_bytes = self.tried[topic].refused_bytes if topic in self.tried else None
        if topic in self.rules:
            refused_bytes = self.rules[topic].max_message_bytes + 1
        if refused_bytes is None or self._is_compressing:
            return None
        size_bytes = record_batch_bytes(key, value, headers)
        return size_bytes if size_bytes >= refused_bytes else None
