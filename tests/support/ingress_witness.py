"""Reads an ingress along as it grows, so that what retention deletes can still be judged."""

from __future__ import annotations

import threading
import uuid
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.records import Incoming, incoming

POLL_S = 0.05
AT_ONCE = 1_000


class IngressWitness:
    """Every committed record of a topic from the beginning on, until left; by origin.

    `start` is the first offset that each partition still had when it was left.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: dict[str, Incoming] = {}
        self.start: dict[int, int] = {}
        self._places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"witness-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self._leaving = threading.Event()
        self._missed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._read, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if self._missed and kind is None:
            raise KafkaException(self._missed[0])

    def close(self) -> None:
        """Read to the present end, and no further."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        self._thread.join()
        for place in self._places:
            self.start[place.partition] = self.log_start(place.partition)
        self._consumer.close()

    def log_start(self, partition: int = 0) -> int:
        """The first offset that the partition still has."""
        return self._consumer.get_watermark_offsets(self._places[partition])[0]

    def of(self, ident: bytes) -> list[Incoming]:
        """The records seen so far that have this id or cancel it, in their order."""
        return [
            record
            for record in list(self.records.values())
            if ident in (record.header("timer-id"), record.header("timer-cancel"))
        ]

    def _read(self) -> None:
        """Left, it still reads to the end of every partition."""
        self._consumer.assign(self._places)
        ended: set[int] = set()
        while not (self._leaving.is_set() and len(ended) == len(self._places)):
            for message in self._consumer.consume(AT_ONCE, POLL_S):
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    record = incoming(message)
                    place = f"{message.topic()}/{record.partition}/{record.offset}"
                    self.records[place] = record
                    ended.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                elif not error.retriable():
                    self._missed.append(error)
                    return
