"""Spans cover committed and sampled records. Errors are counted, not raised."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from proxy.protocol.body import Headers, IngressPartition, Message, delivery_of, packer
from proxy.protocol.outcomes import DeadLetter, Rejection
from proxy.scheduling.batch import Batch, Hop
from proxy.telemetry.metrics import TraceResult
from proxy.tracing.export import CLOSE_WITHIN_S, PUBLISH, WAIT, SpanQueue, span_id_of
from storage.store import Entry
from tests.support.simulation.stand_in import INGRESS, StandInKafka, kafka_error

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-01".encode()
PARTITION = IngressPartition(INGRESS, 0)
FIRED_MS, TOOK_S, COMMITTED_MS = 9_000, 0.5, 9_500


class Site(SpanExporter):
    """A tracer beside an ingress on a stand-in Kafka, and its collector."""

    def __init__(self, max_records: int = 100) -> None:
        self.kafka = StandInKafka(1, lambda: 5_000)
        self.exported: list[ReadableSpan] = []
        self.counts: Counter[TraceResult] = Counter()
        self.is_down = self.is_unreadable = False
        self.hold_up: Callable[[], object] = lambda: None
        self.queue = SpanQueue(self.read, self.count, self, max_records)

    def read(self, partition: int, offsets: Sequence[int], gap: int) -> dict[int, Message]:
        if self.is_unreadable:
            raise kafka_error(KafkaError._TIMED_OUT)
        records = self.kafka.logs[INGRESS, partition]
        return {offset: records[offset] for offset in offsets if offset < len(records)}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.hold_up()
        if self.is_down:
            return SpanExportResult.FAILURE
        self.exported += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Do nothing."""

    def count(self, result: TraceResult, records: int) -> None:
        self.counts[result] += records

    def entry(self, traceparent: bytes | None = SAMPLED, *more: tuple[str, bytes]) -> Entry:
        own = [] if traceparent is None else [("traceparent", traceparent)]
        headers: Headers = [("timer-topic", b"orders"), *own, *more]
        record = self.kafka.append(INGRESS, 0, b"k", b"v", headers)
        return 8_000, record.offset(), "orders", packer()((-1, b"k", b"v", headers))

    def commit(self, *batches: Batch[Any]) -> None:
        self.queue.committed(batches, TOOK_S, COMMITTED_MS)
        self.queue.flush()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tracing.export.FIRST_PAUSE_S", 0.0)


def ids_of(span: ReadableSpan) -> tuple[str, str, str]:
    assert span.context is not None
    assert span.parent is not None
    return span.name, f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}"


def own_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def times_ms(span: ReadableSpan) -> tuple[int, int]:
    return (span.start_time or 0) // 10**6, (span.end_time or 0) // 10**6


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_delivery_has_waited_since_it_was_written_and_was_published_until_the_commit() -> None:
    site = Site()
    site.commit(Batch(PARTITION, [site.entry()]))
    waited, published = site.exported
    assert ids_of(waited) == (WAIT, TRACE_ID, PARENT_ID)
    assert times_ms(waited) == (5_000, FIRED_MS)
    assert ids_of(published) == (PUBLISH, TRACE_ID, own_id(waited))
    assert times_ms(published) == (FIRED_MS, COMMITTED_MS)
    assert attributes(waited)["messaging.destination.name"] == INGRESS
    assert attributes(waited)["messaging.kafka.offset"] == 0
    assert attributes(published)["messaging.destination.name"] == "orders"
    assert attributes(published)["timer.origin"] == f"{INGRESS}/0/0"
    assert attributes(published)["timer.due"] == 8_000
    assert site.counts == {"exported": 1}


def test_ids_are_of_the_record_and_the_same_in_each_process() -> None:
    one, other = Site(), Site()
    for site in (one, other):
        site.commit(Batch(PARTITION, [site.entry(), site.entry()]))
    ids = [own_id(span) for span in one.exported]
    assert ids == [own_id(span) for span in other.exported]
    assert len(set(ids)) == 4
    assert ids[0] == span_id_of(WAIT, f"{INGRESS}/0/0") == "6564f4deee31e91f"


def test_a_rewritten_record_says_where_it_went_and_its_successor_where_it_began() -> None:
    site = Site()
    hop = Hop(delivery_of(site.entry()), "rolled")
    successor = delivery_of(site.entry(SAMPLED, ("timer-first-origin", b"timer.ingress/0/0")))
    site.commit(Batch(PARTITION, [successor], [], [], [], [hop]))
    published = [attributes(one) for one in site.exported if one.name == PUBLISH]
    by_end = {one["timer.end"]: one for one in published}
    assert by_end["rolled"]["messaging.destination.name"] == INGRESS
    assert by_end["delivered"]["timer.first_origin"] == "timer.ingress/0/0"


def test_a_dead_letter_has_waited_and_says_why_it_was_not_published() -> None:
    site = Site()
    headers: Headers = [("timer-dealy", b"5s"), ("traceparent", SAMPLED)]
    offset = site.kafka.append(INGRESS, 0, b"k", b"v", headers).offset()
    refused = Rejection("header-unknown", "did you mean timer-delay?")
    of_nobody = DeadLetter(offset, None, refused, b"k", b"v", [("traceparent", b"")])
    letters = [DeadLetter(offset, None, refused, b"k", b"v", headers), of_nobody]
    site.commit(Batch(PARTITION, [], letters))
    site.commit(Batch(PARTITION, [], letters[:1], [], [], []))
    waited, again = site.exported
    assert waited.to_json() == again.to_json()
    assert ids_of(waited) == (WAIT, TRACE_ID, PARENT_ID)
    assert own_id(waited) == span_id_of(WAIT, f"{INGRESS}/0/{offset}")
    assert times_ms(waited) == (5_000, FIRED_MS)
    assert waited.status.description == "header-unknown: did you mean timer-delay?"
    assert [(event.name, dict(event.attributes or {})) for event in waited.events] == [
        (
            "timer.dead-letter",
            {
                "timer.error": "header-unknown",
                "timer.error_detail": "did you mean timer-delay?",
                "timer.end": "dead-lettered",
            },
        )
    ]
    assert attributes(waited)["error.type"] == "header-unknown"
    assert "timer.due" not in attributes(waited)
    assert site.counts == {"exported": 2, "invalid": 1}


@pytest.mark.parametrize(
    ("raw", "counted"),
    [(None, {}), (SAMPLED[:-1] + b"0", {}), (SAMPLED.upper(), {"invalid": 1})],
    ids=["none", "unsampled", "invalid"],
)
def test_a_record_without_a_sampled_valid_traceparent_has_no_span(
    raw: bytes | None, counted: dict[str, int]
) -> None:
    site = Site()
    site.commit(Batch(PARTITION, [site.entry(raw)]))
    assert site.exported == []
    assert +site.counts == counted


def test_what_exceeds_the_queue_is_dropped_and_counted() -> None:
    site = Site(max_records=2)
    site.commit(Batch(PARTITION, [site.entry() for _ in range(5)]))
    assert site.counts == {"dropped": 3, "exported": 2}
    site.commit(Batch(PARTITION, [site.entry()]))
    assert site.counts == {"dropped": 3, "exported": 3}


def test_a_record_that_is_gone_from_the_ingress_is_counted() -> None:
    site = Site()
    entry = site.entry()
    site.commit(Batch(PARTITION, [entry, (8_000, 77, *entry[2:])]))
    assert site.counts == {"deleted": 1, "exported": 1}


def test_failures_of_the_collector_and_of_the_ingress_are_counted_and_pass() -> None:
    site = Site()
    site.is_down = True
    site.commit(Batch(PARTITION, [site.entry()]))
    site.is_down, site.is_unreadable = False, True
    site.commit(Batch(PARTITION, [site.entry()]))
    site.is_unreadable = False
    site.commit(Batch(PARTITION, [(8_000, 0, "orders", b"traceparent, and no body")]))
    site.commit(Batch(PARTITION, [site.entry()]))
    assert site.counts == {"failed": 3, "exported": 1}


def test_a_collector_that_never_answers_holds_up_neither_the_loop_nor_the_end() -> None:
    site, answer = Site(max_records=300), threading.Event()
    site.hold_up = answer.wait
    began_s = time.monotonic()
    site.queue.committed(
        [Batch(PARTITION, [site.entry() for _ in range(1_000)])], TOOK_S, COMMITTED_MS
    )
    assert time.monotonic() - began_s < 1
    assert site.counts == {"dropped": 700}
    site.queue.close()
    assert time.monotonic() - began_s < 2 * CLOSE_WITHIN_S
    answer.set()


def test_the_last_records_are_exported_at_the_end() -> None:
    site = Site()
    site.queue.committed([Batch(PARTITION, [site.entry()])], TOOK_S, COMMITTED_MS)
    site.queue.close()
    assert site.counts == {"exported": 1}
