"""Spans are made of what was committed and sampled; whatever goes wrong is counted, not raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError

from proxy.records.body import Headers, packer
from proxy.records.delivery import delivery_of
from proxy.records.message import IngressPartition, Message
from proxy.records.outcome import DeadLetter
from proxy.records.rejection import Rejection
from proxy.scheduling.batch import Batch, Hop, ResolvedBatch
from proxy.telemetry.metrics import TraceResult
from proxy.tracing.spans import PUBLISH, WAIT, Failure, TimerSpan, span_id_of
from proxy.tracing.tracer import Tracer
from storage.store import Entry
from tests.support.simulation.stand_in import INGRESS, StandInKafka, kafka_error

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-01".encode()
PARTITION = IngressPartition(INGRESS, 0)
FIRED_MS, TOOK_S, COMMITTED_MS = 9_000, 0.5, 9_500


class Site:
    """A tracer beside an ingress on a stand-in Kafka."""

    def __init__(self, max_records: int = 100) -> None:
        self.kafka = StandInKafka(1, lambda: 5_000)
        self.exported: list[TimerSpan] = []
        self.counts: Counter[TraceResult] = Counter()
        self.why: str | None = None
        self.is_unreadable = False
        self.tracer = Tracer(self, self.export, self.count, max_records)

    def read(self, partition: int, offsets: Sequence[int], gap: int) -> dict[int, Message]:
        if self.is_unreadable:
            raise kafka_error(KafkaError._TIMED_OUT)
        records = self.kafka.logs[INGRESS, partition]
        return {offset: records[offset] for offset in offsets if offset < len(records)}

    def export(self, spans: Sequence[TimerSpan]) -> str | None:
        self.exported += spans if self.why is None else ()
        return self.why

    def count(self, result: TraceResult, records: int) -> None:
        self.counts[result] += records

    def entry(self, traceparent: bytes | None = SAMPLED, *more: tuple[str, bytes]) -> Entry:
        """Of a record that was written to the ingress."""
        own = [] if traceparent is None else [("traceparent", traceparent)]
        headers: Headers = [("timer-topic", b"orders"), *own, *more]
        record = self.kafka.append(INGRESS, 0, b"k", b"v", headers)
        return 8_000, record.offset(), "orders", packer()((-1, b"k", b"v", headers))

    def commit(self, *batches: Batch | ResolvedBatch) -> None:
        self.tracer.committed(batches, TOOK_S, COMMITTED_MS)
        self.tracer.export_next(0)


def test_a_delivery_has_waited_since_it_was_written_and_was_published_until_the_commit() -> None:
    site = Site()
    site.commit(Batch(PARTITION, [site.entry()]))
    waited, published = site.exported
    assert (waited.name, waited.trace_id, waited.parent_id) == (WAIT, TRACE_ID, PARENT_ID)
    assert (waited.start_ms, waited.end_ms) == (5_000, FIRED_MS)
    assert (published.name, published.trace_id, published.parent_id) == (
        PUBLISH,
        TRACE_ID,
        waited.span_id,
    )
    assert (published.start_ms, published.end_ms) == (FIRED_MS, COMMITTED_MS)
    assert waited.attributes["messaging.destination.name"] == INGRESS
    assert waited.attributes["messaging.kafka.offset"] == 0
    assert published.attributes["messaging.destination.name"] == "orders"
    assert published.attributes["timer.origin"] == f"{INGRESS}/0/0"
    assert published.attributes["timer.due"] == 8_000
    assert site.counts == {"exported": 1}


def test_ids_are_of_the_record_and_the_same_in_each_process() -> None:
    one, other = Site(), Site()
    for site in (one, other):
        site.commit(Batch(PARTITION, [site.entry(), site.entry()]))
    ids = [span.span_id for span in one.exported]
    assert ids == [span.span_id for span in other.exported]
    assert len(set(ids)) == 4
    assert ids[0] == span_id_of(WAIT, f"{INGRESS}/0/0") == "6564f4deee31e91f"


def test_a_rewritten_record_says_where_it_went_and_its_successor_where_it_began() -> None:
    site = Site()
    hop = Hop(delivery_of(site.entry()), "rolled")
    successor = delivery_of(site.entry(SAMPLED, ("timer-first-origin", b"timer.ingress/0/0")))
    site.commit(ResolvedBatch(PARTITION, [successor], [], [], [], [hop]))
    by_end = {one.attributes["timer.end"]: one for one in site.exported if one.name == PUBLISH}
    assert by_end["rolled"].attributes["messaging.destination.name"] == INGRESS
    assert by_end["delivered"].attributes["timer.first_origin"] == "timer.ingress/0/0"


def test_a_dead_letter_has_waited_and_says_why_it_was_not_published() -> None:
    site = Site()
    headers: Headers = [("timer-dealy", b"5s"), ("traceparent", SAMPLED)]
    offset = site.kafka.append(INGRESS, 0, b"k", b"v", headers).offset()
    refused = Rejection("header-unknown", "did you mean timer-delay?")
    of_nobody = DeadLetter(offset, None, refused, b"k", b"v", [("traceparent", b"")])
    letters = [DeadLetter(offset, None, refused, b"k", b"v", headers), of_nobody]
    site.commit(Batch(PARTITION, [], letters))
    site.commit(ResolvedBatch(PARTITION, [], letters[:1], [], [], []))
    waited, again = site.exported
    assert waited == again
    assert (waited.name, waited.span_id) == (WAIT, span_id_of(WAIT, f"{INGRESS}/0/{offset}"))
    assert (waited.start_ms, waited.end_ms) == (5_000, FIRED_MS)
    assert waited.failure == Failure("header-unknown", "did you mean timer-delay?", "dead-lettered")
    assert waited.attributes["error.type"] == "header-unknown"
    assert "timer.due" not in waited.attributes
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
    site.why = "no collector"
    site.commit(Batch(PARTITION, [site.entry()]))
    site.why, site.is_unreadable = None, True
    site.commit(Batch(PARTITION, [site.entry()]))
    site.is_unreadable = False
    site.commit(Batch(PARTITION, [(8_000, 0, "orders", b"traceparent, and no body")]))
    site.commit(Batch(PARTITION, [site.entry()]))
    assert site.counts == {"failed": 3, "exported": 1}
