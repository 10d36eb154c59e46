"""Traced records of committed transactions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from proxy.protocol.body import (
    Delivery,
    IngressPartition,
    delivery_of,
    last_header,
    may_have_header,
)
from proxy.protocol.headers import FIRST_ORIGIN, TRACEPARENT, TraceParent, read_traceparent
from proxy.protocol.outcomes import DeadLetter, Rejection
from proxy.scheduling.batch import Batch
from proxy.telemetry.metrics import TraceResult

DELIVERED: Final = "delivered"
LONGEST_ORIGIN: Final = 300
LONGEST_DETAIL: Final = 1_000

log = structlog.get_logger(__name__)


class TracedRecord(NamedTuple):
    """A sampled record of a committed transaction, without its value."""

    ingress: IngressPartition
    offset: int
    parent: TraceParent
    first_origin: str | None
    due_ms: int | None
    target: str | None
    end: str
    """`delivered`, or an outcome."""
    reason: Rejection | None
    fired_ms: int
    committed_ms: int

    @property
    def origin(self) -> str:
        return self.ingress.origin(self.offset)


class Tracer:
    """Hands traced records to `put` while there is room."""

    def __init__(
        self,
        has_room: Callable[[], bool],
        put: Callable[[TracedRecord], None],
        count: Callable[[TraceResult, int], None],
    ) -> None:
        self._has_room, self._put, self._count = has_room, put, count

    def committed(self, batches: Sequence[Batch], took_s: float, now_ms: int) -> None:
        times_ms = now_ms - int(took_s * 1_000), now_ms
        for batch in batches:
            try:
                for record, end in _ended(batch):
                    self._take(batch.ingress, record, end, times_ms)
            except Exception as error:  # noqa: BLE001 (tracing must not stop deliveries)
                self._count("failed", 1)
                log.warning("records not traced", why=repr(error))

    def _take(
        self,
        ingress: IngressPartition,
        record: Delivery | DeadLetter,
        end: str,
        times_ms: tuple[int, int],
    ) -> None:
        raw = last_header(record.headers, TRACEPARENT)
        if raw is None:
            return
        parent = read_traceparent(raw)
        if parent is None:
            self._count("invalid", 1)
        elif parent.is_sampled and not self._has_room():
            self._count("dropped", 1)
        elif parent.is_sampled:
            first = last_header(record.headers, FIRST_ORIGIN) or b""
            reason = record.reason if isinstance(record, DeadLetter) else None
            if reason is not None:
                reason = Rejection(reason.code, reason.detail[:LONGEST_DETAIL])
            self._put(
                TracedRecord(
                    ingress,
                    record.offset,
                    parent,
                    first[:LONGEST_ORIGIN].decode("utf-8", "replace") or None,
                    record.due_ms,
                    record.target,
                    end,
                    reason,
                    *times_ms,
                )
            )


def _ended(batch: Batch) -> Iterator[tuple[Delivery | DeadLetter, str]]:
    yield from ((letter, letter.outcome) for letter in batch.dead_letters)
    yield from ((hop.delivery, hop.what) for hop in batch.hops)
    for one in batch.deliveries:
        if isinstance(one, Delivery):
            yield one, DELIVERED
        elif may_have_header(one[3], TRACEPARENT):
            yield delivery_of(one), DELIVERED
