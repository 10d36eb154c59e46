"""A settings topic that a test fills, and a `SettingsTopic` that follows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from proxy.kafka.settings_topic import SettingsTopic
from tests.support.simulation.stand_in import Record

TOPIC = "timer.settings"
GROUP = "delay-proxy"


class Topic:
    """Consumer of a settings topic with two partitions. It returns `arrived` next."""

    def __init__(self) -> None:
        self.arrived: list[Record] = []
        self.written: list[tuple[str, str]] = []
        self.assigned: list[tuple[int, int]] = []
        self.ends = {0: 0, 1: 0}
        self._noted, self._read = Counter[int](), dict[int, int]()
        self.on_write: Callable[[str, str], object] = lambda _key, _value: None

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: found})

    def assign(self, places: list[Any]) -> None:
        assert len(places) == 2
        self.assigned = [(place.partition, place.offset) for place in places]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number, _offset in self.assigned]

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        numbers = [place.partition for place in places]
        return [TopicPartition(TOPIC, n, self._read.get(n, OFFSET_INVALID)) for n in numbers]

    def poll(self, timeout: float) -> Record | None:
        return next(iter(self._taken(1)), None)

    def consume(self, limit: int, timeout: float) -> list[Record]:
        assert timeout == 0
        return self._taken(limit)

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float, *, cached: bool
    ) -> tuple[int, int]:
        return 0, self.ends[place.partition]

    def close(self) -> None:
        """Do nothing."""

    def produce(
        self, topic: str, value: str, key: str, partition: int, on_delivery: object
    ) -> None:
        self.written.append((key, value))
        self.on_write(key, value)

    def flush(self, timeout: float) -> int:
        return 0

    def note(self, key: str, value: bytes | None, partition: int = 0) -> None:
        offset = self._noted[partition]
        self._noted[partition] += 1
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)
        self.arrived.append(Record(TOPIC, partition, offset, key.encode(), value, [], 0))

    def begin_anew(self) -> None:
        """Restart the topic without records, as after an unclean election."""
        self.arrived, self.ends = [], {0: 0, 1: 0}
        self._noted.clear()

    def end_of_both(self) -> None:
        self.end(0)
        self.end(1)

    def end(
        self, partition: int, code: int = KafkaError._PARTITION_EOF, *, offset: int | None = None
    ) -> None:
        error = KafkaError(code, "end")
        at = self.ends[partition] if offset is None else offset
        self.arrived.append(Record(TOPIC, partition, at, None, None, [], 0, error))

    def _taken(self, limit: int) -> list[Record]:
        taken, self.arrived = self.arrived[:limit], self.arrived[limit:]
        records = [record for record in taken if record.error() is None]
        self._read |= {record.partition(): record.offset() + 1 for record in records}
        return taken


def following(topic: Topic, reader: Topic | None = None) -> SettingsTopic:
    """Follow the topic. `reader` reads committed records and sees the start of an open transaction
    as the end."""
    return SettingsTopic(
        cast(Any, topic),
        lambda: cast(Any, topic),
        lambda: cast(Any, reader or topic),
        TOPIC,
        GROUP,
        heartbeat=lambda: None,
        now_s=count().__next__,
    )


def loaded(topic: Topic) -> SettingsTopic:
    topic.end(0)
    topic.end(1)
    settings = following(topic)
    settings.load()
    return settings
