"""Read records that arrive from now on. The other `client_` examples use it."""

import os
import time
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_END, Consumer, Message, TopicPartition

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")


class Arrivals:
    """Reader of topics from their current end on. It reads committed records only."""

    def __init__(self, *topics: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": f"example-{uuid.uuid4()}",
                "isolation.level": "read_committed",
            }
        )
        found = self._consumer.list_topics(timeout=10).topics
        self._consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_END)
                for topic in topics
                for number in found[topic].partitions
            ]
        )

    def wait(self, count: int, within_s: float) -> Iterator[str]:
        """Return the values of `count` records, or fewer if the time is over."""
        for message in self.messages(count, within_s):
            yield (message.value() or b"").decode()

    def messages(self, count: int, within_s: float) -> Iterator[Message]:
        """Return whole messages, with keys and headers."""
        deadline_s = time.monotonic() + within_s
        while count and time.monotonic() < deadline_s:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                count -= 1
                yield message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()
