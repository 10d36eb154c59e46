"""What a committed transaction did with the records that carry a trace context. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.records.delivery import Delivery, delivery_of
from proxy.records.message import IngressPartition
from proxy.records.traceparent import TRACEPARENT
from proxy.scheduling.batch import Batch, ResolvedBatch
from storage.store import Entry

DELIVERED: Final = "delivered"
_MARK: Final = TRACEPARENT.encode()


class TracedRecord(NamedTuple):
    """A record that may carry a trace context, how it ended or went on, and when: the transaction
    began at `fired_ms`, and was known to be committed at `committed_ms`."""

    ingress: IngressPartition
    record: Entry | Delivery
    end: str
    fired_ms: int
    committed_ms: int

    @property
    def size_bytes(self) -> int:
        """About what it keeps in memory."""
        record = self.record
        return len(record.value or b"") if isinstance(record, Delivery) else len(record[3])

    @property
    def delivery(self) -> Delivery:
        """The record, unpacked."""
        return self.record if isinstance(self.record, Delivery) else delivery_of(self.record)


def traced_records(
    batch: Batch | ResolvedBatch, fired_ms: int, committed_ms: int
) -> Iterator[TracedRecord]:
    """Those of one batch. Packed ones are searched as they are: nothing is unpacked here."""
    found: list[tuple[Entry | Delivery, str]]
    if isinstance(batch, Batch):
        found = [(entry, DELIVERED) for entry in batch.deliveries if _MARK in entry[3]]
    else:
        found = [(delivery, DELIVERED) for delivery in batch.deliveries]
        found += [(hop.delivery, hop.what) for hop in batch.hops]
    for record, end in found:
        if not isinstance(record, Delivery) or record.header(TRACEPARENT) is not None:
            yield TracedRecord(batch.ingress, record, end, fired_ms, committed_ms)
