"""A consumer group inside the test, which decides on rebalances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

TOPIC = "orders"
Told = Callable[[Any, list[TopicPartition]], object]


@dataclass(frozen=True)
class StoredMessage:
    """The used part of confluent_kafka.Message."""

    number: int
    at: int
    stored_key: bytes | None
    epoch: int

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.stored_key

    def value(self) -> bytes:
        return b"%d" % self.at

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def error(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return self.epoch


class GroupStandIn:
    """Topic with record keys by partition, and the group's committed offsets."""

    def __init__(self, keys: Sequence[list[bytes | None]]) -> None:
        self.keys = keys
        self.committed = {n: TopicPartition(TOPIC, n, OFFSET_INVALID) for n in range(len(keys))}
        self.refuses_commits = 0
        """Further refusals, because the group rebalances."""
        self.topic_id: str | None = "id-0"
        """None: the topic does not exist."""
        self.answers = True
        """Whether it reports the id of its topic."""
        self.written_in: dict[tuple[int, int], int] = {}

    def make_anew(self, number: int, keys: list[bytes | None]) -> None:
        self.topic_id = "id-1"
        self.keys[number][:] = keys
        self.committed[number] = TopicPartition(TOPIC, number, OFFSET_INVALID)

    def cut_off(self, number: int, end: int, keys: list[bytes | None]) -> None:
        """Remove the partition's records from `end` on, and add these from a new leader."""
        self.keys[number][end:] = keys
        written = range(end, len(self.keys[number]))
        self.written_in |= {(number, offset): 1 for offset in written}

    def ids_of(self, topics: Collection[str]) -> dict[str, str | None]:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return dict.fromkeys(topics, self.topic_id)

    def is_done(self) -> bool:
        ends = {number: len(keys) for number, keys in enumerate(self.keys) if keys}
        return all(self.committed[number].offset == end for number, end in ends.items())


class MemberStandIn:
    """The used part of confluent_kafka.Consumer."""

    def __init__(self, group: GroupStandIn) -> None:
        self._group = group
        self.positions: dict[int, int] = {}
        self.may_go_back = False
        self._paused: set[int] = set()
        self._told: dict[str, Told] = {}

    def subscribe(self, _topics: list[str], **told: Told) -> None:
        self._told = told

    def give(self, numbers: Collection[int]) -> None:
        places = [TopicPartition(TOPIC, number) for number in numbers]
        self._told["on_assign"](self, places)
        for number in numbers:
            self.positions[number] = max(0, self._group.committed[number].offset)

    def take(self, numbers: Collection[int]) -> None:
        self._told["on_revoke"](self, [TopicPartition(TOPIC, number) for number in numbers])
        for number in numbers:
            del self.positions[number]
        self._paused.difference_update(numbers)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in self.positions]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._paused.update(one.partition for one in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._paused.difference_update(one.partition for one in partitions)

    def poll(self, _wait_s: float) -> StoredMessage | None:
        for number, offset in self.positions.items():
            keys = self._group.keys[number]
            if number not in self._paused and offset < len(keys):
                self.positions[number] += 1
                epoch = self._group.written_in.get((number, offset), 0)
                return StoredMessage(number, offset, keys[offset], epoch)
        return None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if self._group.refuses_commits:
            self._group.refuses_commits -= 1
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        for place in offsets:
            assert not place.metadata
            assert place.partition in self.positions
            assert place.offset >= self._group.committed[place.partition].offset or self.may_go_back
            self._group.committed[place.partition] = place
        return offsets
