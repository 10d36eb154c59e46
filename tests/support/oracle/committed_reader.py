"""Reads whole topics as a careful consumer sees them: committed records only."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.quiet_clients import QUIET
from tests.support.records import Incoming, incoming

ASK_TIMEOUT_S = 180
READ_TIMEOUT_S = 180.0


class Placed(NamedTuple):
    """A record and the topic it lies in."""

    topic: str
    record: Incoming

    @property
    def place(self) -> str:
        """`topic/partition/offset`, as the proxy writes origins."""
        return f"{self.topic}/{self.record.partition}/{self.record.offset}"


class CommittedReader:
    """A consumer outside every group. Topics that do not exist count as empty."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": f"judge-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 50,
            }
        )

    def read(self, topics: Sequence[str], at_least: int = 0) -> Iterator[Placed]:
        """Every record up to the present end of every partition, waiting for so many."""
        for message in self._messages(topics, at_least, time.monotonic() + READ_TIMEOUT_S):
            yield Placed(message.topic() or "", incoming(message))

    def count(self, topics: Sequence[str], at_least: int = 0, deadline: float = 0.0) -> int:
        """How many records there are, waiting for `at_least` so many until the deadline."""
        deadline = deadline or time.monotonic() + READ_TIMEOUT_S
        return sum(1 for _ in self._messages(topics, at_least, deadline))

    def _messages(self, topics: Sequence[str], at_least: int, deadline: float) -> Iterator[Message]:
        places = [place for topic in topics for place in self._partitions(topic)]
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
        seen, ended = 0, set[tuple[str, int]]()
        while (len(ended) < len(places) or seen < at_least) and time.monotonic() < deadline:
            for message in self._consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    seen += 1
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic() or "", message.partition() or 0))
                elif not error.retriable():
                    raise KafkaException(error)
        assert at_least or len(ended) == len(places), f"{topics} could not be read to their ends"

    def _partitions(self, topic: str) -> list[tuple[str, int]]:
        found = self._consumer.list_topics(topic, ASK_TIMEOUT_S).topics[topic]
        return [(topic, number) for number in found.partitions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()
