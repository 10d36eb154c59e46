"""Hands records to the client library: the only place that produces."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from proxy.dispatch.outgoing_records import OutgoingRecord
from proxy.publishing.kafka_transactions import KafkaTransactions
from proxy.records.body import BY_KEY, Kept, unpacked
from proxy.records.headers import DUE, ORIGIN, PREFIX
from proxy.scheduling.batch import Batch
from storage.store import Entry

UNPACKED_AT_ONCE: Final = 128
QUEUE_FULL_WAIT_S: Final = 0.1
METADATA_TIMEOUT_S: Final = 2.0
NOW: Final = 0
"""The timestamp with which librdkafka takes its own clock's."""


class RecordWriter:
    """Produces records within the transaction of `kafka` that is open.

    `heartbeat` is called while the client library has no room.
    """

    def __init__(self, kafka: KafkaTransactions, heartbeat: Callable[[], None]) -> None:
        self._kafka, self._heartbeat = kafka, heartbeat

    def flush(self, timeout_s: float) -> int:
        """Wait for what was produced to arrive; gives how many records have not."""
        return self._kafka.producer.flush(timeout_s)

    def renew_metadata(self, topic: str) -> None:
        """Have the producer ask what partitions the topic has; by itself it does every 5 minutes.

        Raises KafkaException when no answer comes.
        """
        self._kafka.producer.list_topics(topic, METADATA_TIMEOUT_S)
        self._heartbeat()

    def produce(
        self,
        record: OutgoingRecord,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Produce one record, waiting while the client library has no room.

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
                    NOW,
                    headers,  # type: ignore[arg-type]
                )
            except BufferError:
                producer.poll(QUEUE_FULL_WAIT_S)
                self._heartbeat()

    def deliver(self, batch: Batch) -> None:
        """The hot path: deliveries that need no look, stamped and produced without reports.

        By position: named arguments make `produce` a quarter dearer.
        """
        prefix, produce = batch.ingress.prefix, self._kafka.producer.produce
        for entry, (partition, key, value, headers) in _contents(batch.deliveries):
            stamps: Any = (ORIGIN, f"{prefix}{entry[1]}"), (DUE, str(entry[0]))
            if headers is None or isinstance(headers, bytes):
                partition, stamped = BY_KEY, list(stamps)  # noqa: PLW2901
            else:
                stamped = [header for header in headers if header[0][:6] != PREFIX]
                stamped += stamps
            try:
                produce(entry[2], value, key, partition, None, None, NOW, stamped)
            except BufferError:
                self.produce(OutgoingRecord(entry[2], value, key, partition, stamped))


def _contents(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Kept]]:
    """Entries with what they hold, unpacked just in time: so it stays in the caches."""
    for start in range(0, len(entries), UNPACKED_AT_ONCE):
        part = entries[start : start + UNPACKED_AT_ONCE]
        yield from zip(part, unpacked(part), strict=True)
