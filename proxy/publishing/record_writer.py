"""Hands records to the client library: the only place that produces."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from proxy.dispatch.outgoing_records import OutgoingRecord
from proxy.protocol.body import BY_KEY, Kept, unpacked
from proxy.protocol.headers import DUE, ORIGIN, PREFIX
from proxy.publishing.kafka_transactions import KafkaTransactions, NotFlushed
from proxy.scheduling.batch import Batch
from storage.store import Entry

UNPACKED_AT_ONCE: Final = 128
QUEUE_FULL_WAIT_S: Final = 0.1
METADATA_TIMEOUT_S: Final = 2.0


class RecordWriter:
    """Produces records within the transaction of `kafka` that is open.

    `heartbeat` is called while the client library has no room. `stamp_ms` gives the time that
    records carry: without one they carry the wall clock of the process, and a wrong wall clock
    makes the broker refuse them.
    """

    def __init__(
        self, kafka: KafkaTransactions, heartbeat: Callable[[], None], stamp_ms: Callable[[], int]
    ) -> None:
        self._kafka, self._heartbeat, self._stamp_ms = kafka, heartbeat, stamp_ms
        self._time_ms = 0

    def begin(self) -> None:
        """Give the records of one transaction one time."""
        self._time_ms = self._stamp_ms()

    def flush(self, timeout_s: float) -> int:
        """Wait for what was produced to arrive; gives how many records have not."""
        left_s = self._kafka.write_until_s - time.monotonic()
        return self._kafka.producer.flush(max(0.0, min(timeout_s, left_s)))

    def renew_metadata(self, topic: str) -> None:
        """Have the producer ask what partitions the topic has; by itself it does every 5 minutes.

        Without an answer it knows what it knew.
        """
        with suppress(KafkaException):
            self._kafka.producer.list_topics(topic, METADATA_TIMEOUT_S)
        self._heartbeat()

    def produce(
        self,
        record: OutgoingRecord,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Produce one record, waiting while the client library has no room.

        Raises NotFlushed when that takes too long.

        Without `on_delivery` there is no delivery report, which costs more than the record. It
        goes in as `callback`: librdkafka's wrapper looks at no other once that one is given.
        """
        topic, value, key, partition, headers, _, _ = record
        producer = self._kafka.producer
        while True:
            try:
                return producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery,
                    None,
                    self._time_ms,
                    headers,  # type: ignore[arg-type]
                )
            except BufferError:
                if time.monotonic() > self._kafka.write_until_s:
                    raise NotFlushed("the client library has no room for more records") from None
                producer.poll(QUEUE_FULL_WAIT_S)
                self._heartbeat()

    def deliver(self, batch: Batch) -> None:
        """The hot path: deliveries that need no look, stamped and produced without reports.

        By position: named arguments make `produce` a quarter dearer.
        """
        prefix, produce = batch.ingress.prefix, self._kafka.producer.produce
        time_ms = self._time_ms
        for entry, (partition, key, value, headers) in _contents(batch.deliveries):
            stamps: Any = (ORIGIN, f"{prefix}{entry[1]}"), (DUE, str(entry[0]))
            if headers is None or isinstance(headers, bytes):
                partition, stamped = BY_KEY, list(stamps)  # noqa: PLW2901
            else:
                stamped = [header for header in headers if header[0][:6] != PREFIX]
                stamped += stamps
            try:
                produce(entry[2], value, key, partition, None, None, time_ms, stamped)
            except BufferError:
                self.produce(OutgoingRecord(entry[2], value, key, partition, stamped))


def _contents(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Kept]]:
    """Entries with what they hold, unpacked just in time: so it stays in the caches."""
    for start in range(0, len(entries), UNPACKED_AT_ONCE):
        part = entries[start : start + UNPACKED_AT_ONCE]
        yield from zip(part, unpacked(part), strict=True)
