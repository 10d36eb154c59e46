"""What a committed transaction did with the records that carry a trace context. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from proxy.records.delivery import Delivery, delivery_of
from proxy.records.message import IngressPartition
from proxy.records.traceparent import TRACEPARENT
from proxy.scheduling.batch import Batch, ResolvedBatch
from storage.store import Entry

DELIVERED: Final = "delivered"
_MARK: Final = TRACEPARENT.encode()


class Committed(NamedTuple):
    """When a transaction began, and when it was known to be committed."""

    fired_ms: int
    committed_ms: int


class TracedRecord(NamedTuple):
    """A record with a trace context, and how it ended or went on."""

    ingress: IngressPartition
    delivery: Delivery
    end: str
    committed: Committed


class TracedGroup(NamedTuple):
    """Records of one partition that may carry a trace context, packed or not, with one end."""

    ingress: IngressPartition
    records: Sequence[Entry | Delivery]
    end: str
    committed: Committed

    @property
    def size_bytes(self) -> int:
        """About what they keep in memory."""
        return sum(
            len(one.value or b"") if isinstance(one, Delivery) else len(one[3])
            for one in self.records
        )

    def unpacked(self) -> list[TracedRecord]:
        """The records that really have the header."""
        deliveries = (
            one if isinstance(one, Delivery) else delivery_of(one) for one in self.records
        )
        return [
            TracedRecord(self.ingress, delivery, self.end, self.committed)
            for delivery in deliveries
            if _has_header(delivery)
        ]


def traced_groups(batch: Batch | ResolvedBatch, committed: Committed) -> Iterator[TracedGroup]:
    """Those of one batch. Packed ones are searched as they are: nothing is unpacked here."""
    ingress = batch.ingress
    if isinstance(batch, Batch):
        if entries := [entry for entry in batch.deliveries if _MARK in entry[3]]:
            yield TracedGroup(ingress, entries, DELIVERED, committed)
        return
    if deliveries := list(filter(_has_header, batch.deliveries)):
        yield TracedGroup(ingress, deliveries, DELIVERED, committed)
    for hop in batch.hops:
        if _has_header(hop.delivery):
            yield TracedGroup(ingress, [hop.delivery], hop.what, committed)


def _has_header(delivery: Delivery) -> bool:
    return delivery.header(TRACEPARENT) is not None
