"""Writer of single ingress records, each at its own time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.quiet_clients import QUIET
from tests.support.records import Outgoing

FLUSH_TIMEOUT_S = 180
MOST_BYTES = 100_000_000
"""With this high limit, only the broker checks the size."""


class IngressWriter:
    """Writer without waits. At the end of the block the broker has all records in order."""

    def __init__(self, bootstrap: str, topic: str, linger_ms: int = 0) -> None:
        self._topic = topic
        self._refused: list[KafkaError] = []
        settings = {**QUIET, "enable.idempotence": True, "linger.ms": linger_ms}
        self._producer = Producer(
            {**settings, "bootstrap.servers": bootstrap, "message.max.bytes": MOST_BYTES}
        )

    def write(self, record: Outgoing) -> None:
        while not self._has_taken(record):
            self._producer.poll(0.1)
        self._producer.poll(0)

    def _has_taken(self, record: Outgoing) -> bool:
        try:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                on_delivery=self._note,
            )
        except BufferError:
            return False
        return True

    def write_at(self, timed: Iterable[tuple[int, Outgoing]]) -> None:
        """Write each record at its epoch ms, or at once if that is past."""
        for at_ms, record in sorted(timed, key=lambda row: row[0]):
            wait_ms = at_ms - time.time_ns() // 1_000_000
            if wait_ms > 0:
                self._producer.poll(0)
                time.sleep(wait_ms / 1_000)
            self.write(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if kind is None:
            assert not left, f"{left} records did not reach {self._topic}"
            assert not self._refused, f"records refused: {self._refused[0]}"

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(error)
