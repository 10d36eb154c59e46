"""Each series that an alert or a panel uses exists from the start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.chart.watched import selected, series_names
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

AUDIT = "delay_proxy_audit_"
ASKED_WITHIN_S = 180
WORKERS = 2
Sample = tuple[str, dict[str, str]]


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels


def _of_the_audit() -> str:
    from spark_jobs.continuous_audit import Gauges, Totals

    gauges, registry = Gauges(), CollectorRegistry()
    gauges.totals = Totals()
    registry.register(gauges)
    return generate_latest(registry).decode()


def test_a_proxy_for_which_nothing_is_due_yet_has_all_that_is_watched(
    installation: Installation,
) -> None:
    waits = [("timer-topic", b"orders"), ("timer-delay", b"1h")]
    installation.send([Outgoing(b"k", b"v", waits)])
    proxy = installation.proxy("watched", workers=WORKERS)
    proxy.start_ready()

    def text() -> str:
        return proxy.get("/metrics")[1]

    wait_for(lambda: "log_start_offset{" in text(), ASKED_WITHIN_S, "the broker's answer")
    wait_for(lambda: "pending_records{" in text(), ASKED_WITHIN_S, "the record to be read")
    samples = list(_samples(text()))
    asked = {name for name in series_names() if not name.startswith(AUDIT)}
    assert len(asked) > 20
    assert asked <= {name for name, _ in samples}
    for name, label, value in selected():
        assert any(name == n and labels.get(label) == value for n, labels in samples), name
    assert proxy.metric("delay_proxy_ready") == WORKERS
    assert proxy.metric("delay_proxy_target_ingested_records_total") == 1
    assert proxy.metric("delay_proxy_target_asked_delay_seconds_sum") == 3_600


def test_an_audit_that_has_judged_nothing_yet_has_all_that_is_watched() -> None:
    asked = {name for name in series_names() if name.startswith(AUDIT)}
    assert len(asked) > 3
    assert asked <= {name for name, _ in _samples(_of_the_audit())}
