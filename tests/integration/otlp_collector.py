"""OTLP/HTTP collector of spans, as OpenTelemetry's exporter sends them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class Collected(NamedTuple):
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: int
    end_ms: int
    attributes: dict[str, str | int]
    error: str
    events: tuple[str, ...]


class Collector:
    """HTTP server that collects spans while it is open."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        taken = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                taken.spans += _spans(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, origin: str) -> dict[str, Collected]:
        found: dict[str, Collected] = {}
        for span in self.spans:
            if span.attributes["timer.origin"] == origin:
                assert found.setdefault(span.name, span) == span
        return found


def _spans(request: ExportTraceServiceRequest) -> Iterator[Collected]:
    for of_resource in request.resource_spans:
        attributes = {one.key: one.value.string_value for one in of_resource.resource.attributes}
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield _collected(attributes["service.name"], span)


def _collected(service: str, span: Span) -> Collected:
    return Collected(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano // 1_000_000,
        span.end_time_unix_nano // 1_000_000,
        {
            one.key: one.value.string_value
            if one.value.HasField("string_value")
            else one.value.int_value
            for one in span.attributes
        },
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else "",
        tuple(event.name for event in span.events),
    )
