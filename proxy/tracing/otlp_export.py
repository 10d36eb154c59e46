"""Spans on their way to a collector: the only module that imports OpenTelemetry.

Endpoint, headers, time-outs and resource come from the standard variables `OTEL_*`.
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy import __version__
from proxy.tracing.spans import Failure, TimerSpan

KINDS: Final = {"consumer": SpanKind.CONSUMER, "producer": SpanKind.PRODUCER}
DEAD_LETTER: Final = "timer.dead-letter"
NS_PER_MS: Final = 1_000_000


class _LastMessages(logging.Handler):
    """The exporter says in its log alone why it failed: what went wrong, and that it gave up."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: deque[str] = deque(maxlen=2)

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def taken(self) -> str:
        """What was said since the last call."""
        text = " ".join(self._texts)
        self._texts.clear()
        return text


class OtlpExport:
    """Exports by HTTP, with the exporter's own retries and time-out."""

    def __init__(self) -> None:
        own = Resource.create({"service.name": "kafka-delay-proxy", "service.version": __version__})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("kafka-delay-proxy", __version__)
        self._log = _LastMessages()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._log)
        logger.propagate = False
        self._exporter = OTLPSpanExporter()

    def export(self, spans: Sequence[TimerSpan]) -> str | None:
        """Send them; why that failed, else None."""
        result = self._exporter.export([self._readable(span) for span in spans])
        return None if result is SpanExportResult.SUCCESS else self._log.taken()

    def close(self) -> None:
        """Stop trying."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: TimerSpan) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(span.trace_id, span.span_id, is_remote=False),
            _context(span.trace_id, span.parent_id, is_remote=span.is_remote),
            self._resource,
            span.attributes,
            events=_events(span),
            status=_status(span.failure),
            kind=KINDS[span.kind],
            start_time=span.start_ms * NS_PER_MS,
            end_time=span.end_ms * NS_PER_MS,
            instrumentation_scope=self._scope,
        )


def _status(failure: Failure | None) -> Status:
    if failure is None:
        return Status(StatusCode.UNSET)
    return Status(StatusCode.ERROR, f"{failure.code}: {failure.detail}")


def _events(span: TimerSpan) -> list[Event]:
    if span.failure is None:
        return []
    code, detail, end = span.failure
    attributes = {"timer.error": code, "timer.error_detail": detail, "timer.end": end}
    return [Event(DEAD_LETTER, attributes, span.end_ms * NS_PER_MS)]


def _context(trace_id: str, span_id: str, *, is_remote: bool) -> SpanContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote, sampled)
