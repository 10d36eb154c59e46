"""Exports the spans of committed transactions to a collector. A thread of OpenTelemetry's batch
processor does the work. The standard variables `OTEL_*` configure the export."""

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias, cast

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy import __version__
from proxy.protocol.body import (
    Delivery,
    IngressPartition,
    Message,
    delivery_of,
    last_header,
    may_have_header,
)
from proxy.protocol.headers import FIRST_ORIGIN, TRACEPARENT, TraceParent, read_traceparent
from proxy.protocol.outcomes import DeadLetter, Rejection
from proxy.scheduling.batch import Batch
from proxy.telemetry.collectors import DELIVERED
from proxy.telemetry.metrics import TraceResult

MAX_RECORDS: Final = 10_000
AT_ONCE: Final = 256
EXPORT_EVERY_MS: Final = 500
GAP: Final = 500
"""Up to this many offsets between two wanted records are read, not jumped over."""
CLOSE_WITHIN_S: Final = 3.0
PAUSE_PER_WORK: Final = 9
"""The thread pauses for this multiple of its CPU time, because the loop needs the interpreter."""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0
"""After failures the pauses become long, because each failure leaves cyclic garbage, which a worker
never collects."""

LONGEST_ORIGIN: Final = 300
LONGEST_DETAIL: Final = 1_000
WAIT: Final = "timer.wait"
PUBLISH: Final = "timer.publish"
DEAD_LETTER: Final = "timer.dead-letter"
NS_PER_MS: Final = 1_000_000
_SAMPLED: Final = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))

ReadIngress: TypeAlias = Callable[[int, Sequence[int], int], Mapping[int, Message]]

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


class _Queued(NamedTuple):
    """A traced record as the batch processor takes it. The processor reads only the flags of
    `context`."""

    record: TracedRecord
    context: SpanContext = _SAMPLED


class _LastMessages(logging.Handler):
    """Keeps the SDK's last messages: nothing else says why an export failed."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: deque[str] = deque(maxlen=2)
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def taken(self) -> str:
        text = " ".join(self._texts)
        self._texts.clear()
        return text


class SpanQueue(SpanExporter):
    """A queue of traced records, and the thread that exports their spans. A span needs the record's
    ingress timestamp, which only that thread can read."""

    def __init__(
        self,
        read_ingress: ReadIngress,
        count: Callable[[TraceResult, int], None],
        exporter: SpanExporter | None = None,
        max_records: int = MAX_RECORDS,
    ) -> None:
        self._read_ingress, self._count, self._max_records = read_ingress, count, max_records
        self._messages = _LastMessages()
        self._exporter = exporter or OTLPSpanExporter()
        self._put, self._done = 0, 0
        """Numbers of queued and of exported records. Only one thread writes each number."""
        self._is_closing, self._failure_pause_s = threading.Event(), 0.0
        self._processor = BatchSpanProcessor(
            self,
            max_queue_size=max(max_records, AT_ONCE),
            schedule_delay_millis=EXPORT_EVERY_MS,
            max_export_batch_size=AT_ONCE,
        )

    def committed(self, batches: Sequence[Batch[Any]], took_s: float, now_ms: int) -> None:
        """Queue the sampled records of a committed transaction."""
        times_ms = now_ms - int(took_s * 1_000), now_ms
        for batch in batches:
            try:
                for record, end in _ended(batch):
                    if (parent := last_header(record.headers, TRACEPARENT)) is not None:
                        self._take(batch.ingress, record, end, parent, times_ms)
            except Exception as error:  # noqa: BLE001 (tracing must not stop deliveries)
                self._count("failed", 1)
                log.warning("records not traced", why=repr(error))

    def _take(
        self,
        ingress: IngressPartition,
        record: Delivery | DeadLetter,
        end: str,
        traceparent: bytes,
        times_ms: tuple[int, int],
    ) -> None:
        parent = read_traceparent(traceparent)
        if parent is None:
            self._count("invalid", 1)
        elif not parent.is_sampled:
            return
        elif self._put - self._done >= self._max_records:  # the processor would drop it silently
            self._count("dropped", 1)
        else:
            traced = _traced(ingress, record, end, parent, times_ms)
            self._put += 1
            self._processor.on_end(cast(Any, _Queued(traced)))

    def flush(self) -> None:
        self._processor.force_flush()

    def close(self) -> None:
        """Export the queue, for at most `CLOSE_WITHIN_S`. A dead collector must not delay the
        exit."""
        self._is_closing.set()
        last = threading.Thread(target=self._processor.shutdown, name="tracing", daemon=True)
        last.start()
        last.join(CLOSE_WITHIN_S)
        self._exporter.shutdown()

    def shutdown(self) -> None:
        """Do nothing when the processor calls this: `close` does the work."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send and count the records' spans, then pause. Called in the processor's thread."""
        began_s = time.thread_time()
        queued = cast(Sequence[_Queued], spans)
        why = self._try_export([one.record for one in queued])
        self._done += len(queued)
        worked_s = time.thread_time() - began_s
        self._is_closing.wait(max(self._failure_pause_s, worked_s * PAUSE_PER_WORK))
        return SpanExportResult.FAILURE if why else SpanExportResult.SUCCESS

    def _try_export(self, records: Sequence[TracedRecord]) -> str | None:
        known = len(records)
        try:
            times = self._written_ms(records)
            known = sum(one.origin in times for one in records)
            if known < len(records):
                self._count("deleted", len(records) - known)
            found = [one for one in records if one.origin in times]
            spans = [span for one in found for span in timer_spans(one, times[one.origin])]
            is_sent = not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS
            why = None if is_sent else self._messages.taken()
        except Exception as error:  # noqa: BLE001 (tracing must not end: delivery goes on)
            why = repr(error)
        self._count("exported" if why is None else "failed", known)
        if why is None:
            self._failure_pause_s = 0.0
        else:
            pause_s = min(max(FIRST_PAUSE_S, 2 * self._failure_pause_s), LONGEST_PAUSE_S)
            self._failure_pause_s = pause_s
            log.warning("spans not exported", records=known, why=why, pause_s=pause_s)
        return why

    def _written_ms(self, records: Sequence[TracedRecord]) -> dict[str, int]:
        """Return the ingress timestamps by origin, without deleted records."""
        offsets: dict[IngressPartition, set[int]] = defaultdict(set)
        for traced in records:
            offsets[traced.ingress].add(traced.offset)
        return {
            ingress.origin(offset): message.timestamp()[1]
            for ingress, wanted in offsets.items()
            for offset, message in self._read_ingress(ingress.number, sorted(wanted), GAP).items()
        }


def _ended(batch: Batch[Any]) -> Iterator[tuple[Delivery | DeadLetter, str]]:
    yield from ((letter, letter.outcome) for letter in batch.dead_letters)
    yield from ((hop.delivery, hop.what) for hop in batch.hops)
    for one in batch.deliveries:
        if isinstance(one, Delivery):
            yield one, DELIVERED
        elif may_have_header(one[3], TRACEPARENT):
            yield delivery_of(one), DELIVERED


def _traced(
    ingress: IngressPartition,
    record: Delivery | DeadLetter,
    end: str,
    parent: TraceParent,
    times_ms: tuple[int, int],
) -> TracedRecord:
    first = (last_header(record.headers, FIRST_ORIGIN) or b"")[:LONGEST_ORIGIN]
    first_origin = first.decode("utf-8", "replace") or None
    reason = record.reason if isinstance(record, DeadLetter) else None
    if reason is not None:
        reason = Rejection(reason.code, reason.detail[:LONGEST_DETAIL])
    facts = first_origin, record.due_ms, record.target, end, reason
    return TracedRecord(ingress, record.offset, parent, *facts, *times_ms)


# Attributes follow OpenTelemetry's messaging conventions, with some additions
# (https://opentelemetry.io/docs/specs/semconv/messaging/kafka/).

_RESOURCE: Final = Resource.create(
    {"service.name": "kafka-delay-proxy", "service.version": __version__}
).merge(OTELResourceDetector().detect())
_SCOPE: Final = InstrumentationScope("kafka-delay-proxy", __version__)


def span_id_of(name: str, origin: str) -> str:
    """Return the id of a record's span, which is the same in every process."""
    return blake2b(f"{name} {origin}".encode(), digest_size=8).hexdigest()


def timer_spans(traced: TracedRecord, written_ms: int) -> list[ReadableSpan]:
    """Return the spans of a record's wait and publishing. A dead letter has only the wait."""
    ingress, origin = traced.ingress, traced.origin
    fired_ms, reason = traced.fired_ms, traced.reason
    timer: dict[str, str | int | None] = {
        "timer.origin": origin,
        "timer.due": traced.due_ms,
        "timer.first_origin": traced.first_origin,
    }
    wait_id = span_id_of(WAIT, origin)
    place: dict[str, str | int | None] = {
        "messaging.destination.partition.id": str(ingress.number),
        "messaging.kafka.offset": traced.offset,
        "error.type": None if reason is None else reason.code,
    }
    waited = _span(
        traced,
        WAIT,
        SpanKind.CONSUMER,
        traced.parent.span_id,
        (min(written_ms, fired_ms), fired_ms),
        {**_messaging("wait", "receive", ingress.topic), **place, **timer},
    )
    if reason is not None:
        return [waited]
    target = str(traced.target) if traced.end == DELIVERED else ingress.topic
    published = {**_messaging("publish", "send", target), "timer.end": traced.end, **timer}
    times_ms = fired_ms, max(traced.committed_ms, fired_ms)
    return [waited, _span(traced, PUBLISH, SpanKind.PRODUCER, wait_id, times_ms, published)]


def _span(
    traced: TracedRecord,
    name: str,
    kind: SpanKind,
    parent_id: str,
    times_ms: tuple[int, int],
    attributes: Mapping[str, str | int | None],
) -> ReadableSpan:
    events, status = [], Status(StatusCode.UNSET)
    if (reason := traced.reason) is not None:
        status = Status(StatusCode.ERROR, f"{reason.code}: {reason.detail}")
        why = {"timer.error": reason.code, "timer.error_detail": reason.detail}
        events = [Event(DEAD_LETTER, {**why, "timer.end": traced.end}, times_ms[1] * NS_PER_MS)]
    trace_id, is_remote = traced.parent.trace_id, kind is SpanKind.CONSUMER
    return ReadableSpan(
        name,
        _context(trace_id, span_id_of(name, traced.origin), is_remote=False),
        _context(trace_id, parent_id, is_remote=is_remote),
        _RESOURCE,
        {key: value for key, value in attributes.items() if value is not None},
        events=events,
        status=status,
        kind=kind,
        start_time=times_ms[0] * NS_PER_MS,
        end_time=times_ms[1] * NS_PER_MS,
        instrumentation_scope=_SCOPE,
    )


def _messaging(name: str, kind: str, topic: str) -> dict[str, str]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _context(trace_id: str, span_id: str, *, is_remote: bool) -> SpanContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote, sampled)
