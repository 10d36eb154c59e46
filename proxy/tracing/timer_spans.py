"""The spans of one record: it waited, and was published. Pure.

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


class TimerSpan(NamedTuple):
    """A span as it is to be exported; ids in hexadecimal digits. is_remote: the parent is the
    producer's."""

    name: str
    kind: Literal["consumer", "producer"]
    trace_id: str
    span_id: str
    parent_id: str
    is_remote: bool
    start_ms: int
    end_ms: int
    attributes: Attributes


def span_id_of(name: str, origin: str) -> str:
    """The same for the same record, whoever exports it and however often."""
    return blake2b(f"{name} {origin}".encode(), digest_size=8).hexdigest()


def timer_spans(traced: TracedRecord, parent: TraceParent, written_ms: int) -> list[TimerSpan]:
    """The two of one record that was written at `written_ms`, by the broker's timestamp."""
    delivery, ingress = traced.delivery, traced.ingress
    origin = ingress.origin(delivery.offset)
    wait_id, publish_id = span_id_of(WAIT, origin), span_id_of(PUBLISH, origin)
    first = delivery.header(FIRST_ORIGIN)
    timer: Attributes = {"timer.due": delivery.due_ms, "timer.origin": origin}
    if first is not None:
        timer["timer.first_origin"] = first.decode("utf-8", "replace")
    waited: Attributes = {
        **_messaging("wait", "receive", ingress.topic),
        "messaging.destination.partition.id": str(ingress.number),
        "messaging.kafka.offset": delivery.offset,
        **timer,
    }
    target = delivery.target if traced.end == DELIVERED else ingress.topic
    published = {**_messaging("publish", "send", target), "timer.end": traced.end, **timer}
    (fired_ms, committed_ms), trace_id = traced.committed, parent.trace_id
    start_ms = min(written_ms, fired_ms)
    end_ms = max(committed_ms, fired_ms)
    return [
        TimerSpan(
            WAIT, "consumer", trace_id, wait_id, parent.span_id, True, start_ms, fired_ms, waited
        ),
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
