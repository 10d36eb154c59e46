"""Continuous reader of an ingress topic. With it, records that retention deletes can be judged."""

from __future__ import annotations

import threading
import uuid
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from proxy.kafka.log_ranges import answered_offset
from tests.support.quiet_clients import QUIET, admin_client
from tests.support.records import Incoming, incoming
from tests.support.waiting import wait_for

POLL_S = 0.05
AT_ONCE = 1_000
ASK_TIMEOUT_S = 180


class IngressWitness:
    """Every committed record of a topic by origin, until the end of the block. `start` is the first
    offset left in each partition at the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: dict[str, Incoming] = {}
        self.start: dict[int, int] = {}
        self._places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": f"witness-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self._admin = admin_client(bootstrap)
        self._leaving = threading.Event()
        self._read_to: dict[int, int] = {}
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
        """Read to the current end and stop."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        self._thread.join()
        for place in self._places:
            self.start[place.partition] = self.log_start(place.partition)
        self._consumer.close()

    def log_start(self, partition: int = 0) -> int:
        return self._offset(partition, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def count(self) -> int:
        """Return the number of committed records, including deleted records. Wait for the end of
        open transactions."""
        for number in range(len(self._places)):
            end = self._offset(number, OffsetSpec.latest())  # type: ignore[no-untyped-call]
            wait_for(partial(self._has_read, number, end), ASK_TIMEOUT_S, "the witness to read")
        return len(self.records)

    def _has_read(self, partition: int, end: int) -> bool:
        return self._read_to.get(partition, 0) >= end

    def _offset(self, partition: int, spec: OffsetSpec) -> int:
        place = TopicPartition(self._places[partition].topic, partition)
        (answer,) = self._admin.list_offsets(
            {place: spec},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ASK_TIMEOUT_S,
        ).values()
        return answered_offset(answer)

    def of(self, ident: bytes) -> list[Incoming]:
        return [
            record
            for record in list(self.records.values())
            if ident in (record.header("timer-id"), record.header("timer-cancel"))
        ]

    def _read(self) -> None:
        """Read until told to stop, then to the end of every partition."""
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
                    self._read_to[partition] = message.offset() or 0
                elif not error.retriable():
                    self._missed.append(error)
                    return
