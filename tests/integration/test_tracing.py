"""Spans of a real proxy on a real broker, exported by OTLP over HTTP."""

from __future__ import annotations

import shutil
import socket

import pytest

from proxy.tracing.export import PUBLISH, WAIT, span_id_of
from tests.integration.otlp_collector import Collector
from tests.support.installation.installation import Installation
from tests.support.records import Incoming, Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-01".encode()
UNSAMPLED = SAMPLED[:-1] + b"0"
ENDPOINT, TIMEOUT_S = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT"
FOR_EVER_S = "3600"
TRACED = "delay_proxy_traced_records_total"


def written(installation: Installation, target: str, traceparent: bytes, delay: str) -> Incoming:
    asked = [("timer-topic", target.encode()), ("timer-delay", delay.encode())]
    before = len(read_to_end(installation.bootstrap, installation.ingress))
    installation.send([Outgoing(b"k", b"v", [*asked, ("traceparent", traceparent)])])
    records = read_to_end(installation.bootstrap, installation.ingress)
    assert len(records) == before + 1
    return max(records, key=lambda record: (record.timestamp_ms, record.offset))


def origin_of(installation: Installation, record: Incoming) -> str:
    return f"{installation.ingress}/{record.partition}/{record.offset}"


def test_one_trace_links_producer_waiting_and_publishing_also_over_a_sigkill(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = installation.target()
    with Collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        proxy = installation.proxy(tracing={"enabled": True}, targets={"deny": ["secret-*"]})
        proxy.start_ready()
        unsampled = written(installation, target, UNSAMPLED, "100ms")
        soon = written(installation, target, SAMPLED, "500ms")
        later = written(installation, target, SAMPLED, "45s")
        dead = written(installation, "secret-orders", SAMPLED, "5s")
        soon_at, later_at, dead_at = (origin_of(installation, one) for one in (soon, later, dead))
        wait_for(lambda: len(collector.of(soon_at)) == 2, WITHIN_S, "spans of the first")
        wait_for(lambda: len(collector.of(dead_at)) == 1, WITHIN_S, "the span of the dead letter")
        proxy.kill()
        assert collector.of(later_at) == {}
        shutil.rmtree(proxy.data_dir)
        proxy.start_ready()
        wait_for(lambda: len(collector.of(later_at)) == 2, WITHIN_S, "spans of the other")
        assert collector.of(origin_of(installation, unsampled)) == {}
        (failed,) = collector.of(dead_at).values()
    assert (failed.name, failed.parent_id, failed.start_ms) == (WAIT, PARENT_ID, dead.timestamp_ms)
    assert failed.error == "target-refused: secret-orders is denied by the setting targets.deny"
    assert failed.events == ("timer.dead-letter",)
    for record, origin in ((soon, soon_at), (later, later_at)):
        waited, published = (collector.of(origin)[name] for name in (WAIT, PUBLISH))
        assert (waited.service, waited.trace_id, waited.parent_id) == (
            "kafka-delay-proxy",
            TRACE_ID,
            PARENT_ID,
        )
        assert waited.span_id == span_id_of(WAIT, origin)
        assert waited.start_ms == record.timestamp_ms
        assert waited.attributes["messaging.kafka.offset"] == record.offset
        assert published.span_id == span_id_of(PUBLISH, origin)
        assert (published.trace_id, published.parent_id) == (TRACE_ID, waited.span_id)
        assert int(published.attributes["timer.due"]) <= published.start_ms <= published.end_ms
        assert published.attributes["messaging.destination.name"] == target
    delivered = read_to_end(installation.bootstrap, target)
    assert sorted(str(one.header("traceparent")) for one in delivered) == sorted(
        map(str, [UNSAMPLED, SAMPLED, SAMPLED])
    )


def test_a_collector_that_never_answers_holds_up_no_delivery_and_no_end(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, records = installation.target(), 300
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv(TIMEOUT_S, FOR_EVER_S)
        proxy = installation.proxy(tracing={"enabled": True})
        proxy.start_ready()
        for _ in range(2):
            written(installation, target, SAMPLED, "0")
        headers = [("timer-topic", target.encode()), ("timer-delay", b"1s")]
        headers += [("traceparent", SAMPLED)]
        installation.send([Outgoing(b"k", b"v", [*headers]) for _ in range(records)])
        installation.await_ends(records + 2)
        assert proxy.metric(TRACED) == 0, "an export has ended"
        assert proxy.stop() == 0
