"""The spans of one record: it waited, and was published, or is a dead letter. Pure.

Attributes are those of OpenTelemetry's conventions for messaging
(https://opentelemetry.io/docs/specs/semconv/messaging/kafka/), and some of our own.
"""

from hashlib import blake2b
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.records.headers import FIRST_ORIGIN
from proxy.records.traceparent import TraceParent
from proxy.tracing.traced_records import DELIVERED, TracedRecord

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
