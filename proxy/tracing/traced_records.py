"""What a committed transaction did with the records that carry a trace context. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from proxy.records.body import Headers, last_header
from proxy.records.delivery import Delivery, delivery_of
from proxy.records.message import IngressPartition
from proxy.records.outcome import DeadLetter
from proxy.records.rejection import Rejection
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
    """A record with a trace context, and how it ended or went on. reason: why it is a dead letter,
    if it is one; due and target may be unknown then."""

    ingress: IngressPartition
    offset: int
    due_ms: int | None
    target: str | None
    headers: Headers
    end: str
    committed: Committed
    reason: Rejection | None = None

    @property
    def origin(self) -> str:
        return self.ingress.origin(self.offset)

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return last_header(self.headers, name)


class TracedGroup(NamedTuple):
    """Records of one partition that may carry a trace context, packed or not, with one end."""

    ingress: IngressPartition
    records: Sequence[Entry | Delivery | DeadLetter]
    end: str
    committed: Committed

    @property
    def size_bytes(self) -> int:
        """About what they keep in memory."""
        return sum(
            len(one.value or b"") if isinstance(one, Delivery | DeadLetter) else len(one[3])
            for one in self.records
        )

    def unpacked(self) -> list[TracedRecord]:
        """The records that really have the header."""
        unpacked = (
            one if isinstance(one, Delivery | DeadLetter) else delivery_of(one)
            for one in self.records
        )
        return [
            TracedRecord(
                self.ingress,
                one.offset,
                one.due_ms,
                one.target,
                one.headers,
                self.end,
                self.committed,
                one.reason if isinstance(one, DeadLetter) else None,
            )
            for one in unpacked
            if _has_header(one.headers)
        ]


def traced_groups(batch: Batch | ResolvedBatch, committed: Committed) -> Iterator[TracedGroup]:
    """Those of one batch. Packed ones are searched as they are: nothing is unpacked here."""
    ingress = batch.ingress
    for letter in batch.dead_letters:
        if _has_header(letter.headers):
            yield TracedGroup(ingress, [letter], letter.outcome, committed)
    if isinstance(batch, Batch):
        if entries := [entry for entry in batch.deliveries if _MARK in entry[3]]:
            yield TracedGroup(ingress, entries, DELIVERED, committed)
        return
    if deliveries := [one for one in batch.deliveries if _has_header(one.headers)]:
        yield TracedGroup(ingress, deliveries, DELIVERED, committed)
    for hop in batch.hops:
        if _has_header(hop.delivery.headers):
            yield TracedGroup(ingress, [hop.delivery], hop.what, committed)


def _has_header(headers: Headers) -> bool:
    return last_header(headers, TRACEPARENT) is not None
