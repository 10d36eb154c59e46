"""Spans of records that carry a trace context, on their way to be made."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.records.body import Headers, last_header
from proxy.records.delivery import Delivery, delivery_of
from proxy.records.headers import FIRST_ORIGIN
from proxy.records.message import IngressPartition
from proxy.records.outcome import DeadLetter
from proxy.records.rejection import Rejection
from proxy.records.traceparent import TRACEPARENT, TraceParent
from proxy.scheduling.batch import Batch, ResolvedBatch
from storage.store import Entry

# What a committed transaction did with the records that carry a trace context. Pure.

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


# The spans of one record: it waited, and was published, or is a dead letter. Pure.
#
# Attributes are those of OpenTelemetry's conventions for messaging
# (https://opentelemetry.io/docs/specs/semconv/messaging/kafka/), and some of our own.

WAIT: Final = "timer.wait"
PUBLISH: Final = "timer.publish"
Attributes: TypeAlias = dict[str, str | int]


class Failure(NamedTuple):
    """Why a record is a dead letter: code and sentence; its outcome."""

    code: str
    detail: str
    end: str


class TimerSpan(NamedTuple):
    """A span as it is to be exported; ids in hexadecimal digits. is_remote: the parent is the
    producer's. failure: in what the span ended, if not well."""

    name: str
    kind: Literal["consumer", "producer"]
    trace_id: str
    span_id: str
    parent_id: str
    is_remote: bool
    start_ms: int
    end_ms: int
    attributes: Attributes
    failure: Failure | None = None


def span_id_of(name: str, origin: str) -> str:
    """The same for the same record, whoever exports it and however often."""
    return blake2b(f"{name} {origin}".encode(), digest_size=8).hexdigest()


def timer_spans(traced: TracedRecord, parent: TraceParent, written_ms: int) -> list[TimerSpan]:
    """Those of one record that was written at `written_ms`, by the broker's timestamp: it waited,
    and was published, unless it is a dead letter."""
    ingress, origin = traced.ingress, traced.origin
    wait_id, publish_id = span_id_of(WAIT, origin), span_id_of(PUBLISH, origin)
    timer: Attributes = {"timer.origin": origin}
    if traced.due_ms is not None:
        timer["timer.due"] = traced.due_ms
    if (first := traced.header(FIRST_ORIGIN)) is not None:
        timer["timer.first_origin"] = first.decode("utf-8", "replace")
    (fired_ms, committed_ms), trace_id = traced.committed, parent.trace_id
    waited = TimerSpan(
        WAIT,
        "consumer",
        trace_id,
        wait_id,
        parent.span_id,
        True,
        min(written_ms, fired_ms),
        fired_ms,
        {
            **_messaging("wait", "receive", ingress.topic),
            "messaging.destination.partition.id": str(ingress.number),
            "messaging.kafka.offset": traced.offset,
            **timer,
        },
    )
    if (reason := traced.reason) is not None:
        waited.attributes["error.type"] = reason.code
        return [waited._replace(failure=Failure(reason.code, reason.detail, traced.end))]
    target = str(traced.target) if traced.end == DELIVERED else ingress.topic
    published = {**_messaging("publish", "send", target), "timer.end": traced.end, **timer}
    end_ms = max(committed_ms, fired_ms)
    return [
        waited,
        TimerSpan(
            PUBLISH, "producer", trace_id, publish_id, wait_id, False, fired_ms, end_ms, published
        ),
    ]


def _messaging(name: str, kind: str, topic: str) -> Attributes:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


# Between the loop, which must not wait, and the thread that makes spans.


class GroupQueue:
    """Holds so many records, of so many bytes together, and takes no more."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._groups: deque[TracedGroup] = deque()
        self._records = self._size_bytes = 0
        self._changed = threading.Condition()

    def put(self, group: TracedGroup) -> int:
        """How many of its records had no room."""
        came = len(group.records)
        with self._changed:
            kept = group._replace(records=group.records[: self._max_records - self._records])
            size_bytes = kept.size_bytes
            if not kept.records or self._size_bytes + size_bytes > self._max_bytes:
                return came
            self._groups.append(kept)
            self._records += len(kept.records)
            self._size_bytes += size_bytes
            self._changed.notify()
        return came - len(kept.records)

    def take(self, most: int, timeout_s: float) -> list[TracedGroup]:
        """The first groups, of at most so many records, after a wait for one if need be."""
        taken: list[TracedGroup] = []
        with self._changed:
            self._changed.wait_for(lambda: self._groups, timeout_s)
            while self._groups and most > 0:
                group = self._groups.popleft()
                if len(group.records) > most:
                    self._groups.appendleft(group._replace(records=group.records[most:]))
                    group = group._replace(records=group.records[:most])
                taken.append(group)
                most -= len(group.records)
            self._records -= count_of(taken)
            self._size_bytes -= sum(group.size_bytes for group in taken)
        return taken


def count_of(groups: Iterable[TracedGroup]) -> int:
    """How many records these have together."""
    return sum(len(group.records) for group in groups)
