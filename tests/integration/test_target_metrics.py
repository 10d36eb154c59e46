"""Each target's records, in its metrics and in the listing."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.installation.admin_client import call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Headers, Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
CAPPED = 600
OF_ORDERS = {"delivered": 3, "cancelled": 2, "dead-lettered": 1}


def request(target: str, delay: str, *more: tuple[str, bytes]) -> Outgoing:
    asked: Headers = [("timer-topic", target.encode()), ("timer-delay", delay.encode()), *more]
    return Outgoing(b"k", b"value", asked)


def by_target(proxy: ProxyProcess, name: str) -> Counter[tuple[str, ...]]:
    counts = Counter[tuple[str, ...]]()
    for family in text_string_to_metric_families(proxy.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name == f"delay_proxy_{name}":
                asked = (
                    sample.labels[label] for label in ("target", "end") if label in sample.labels
                )
                counts[tuple(asked)] += int(sample.value)
    return counts


def test_each_end_of_a_targets_records_is_counted_and_each_wait_has_its_reason(
    installation: Installation,
) -> None:
    orders, capped = installation.target("orders"), installation.target("capped")
    missing = f"{installation.name}.missing"
    proxy = installation.proxy(release={"per_target": {capped: 1}})
    proxy.start_ready()
    far = [request(orders, "1h", ("timer-id", b"%d" % n)) for n in range(2)]
    cancels = [Outgoing(b"k", None, [("timer-cancel", b"%d" % n)]) for n in range(2)]
    installation.send([*(request(orders, "1ms") for _ in range(3)), *far, *cancels])
    installation.send([request(orders, "1ms", ("timer-partition", b"99")), request(missing, "1ms")])
    installation.send([request(capped, "1ms") for _ in range(CAPPED)])

    def ends() -> dict[str, int]:
        found = by_target(proxy, "target_records_total")
        return {end: n for (target, end), n in found.items() if target == orders and n}

    wait_for(lambda: ends() == OF_ORDERS, WITHIN_S, "each end")
    assert by_target(proxy, "target_ingested_records_total")[orders,] == 6
    assert by_target(proxy, "target_lateness_seconds_count")[orders,] == 3
    assert by_target(proxy, "target_asked_delay_seconds_count")[orders,] == 6

    def whys() -> set[tuple[str, str, bool]]:
        listed = call(proxy, "GET", "/pending/records?limit=1000")[1]["records"]
        return {(one["target"], one["why"], one["attempt"] > 0) for one in listed}

    wanted = {(capped, "rate-limited", False), (missing, "requeued", True)}
    wait_for(lambda: wanted <= whys(), WITHIN_S, "each reason")

    def is_counted() -> bool:
        requeued = by_target(proxy, "target_records_total")
        waiting, in_bytes = by_target(proxy, "pending_records"), by_target(proxy, "pending_bytes")
        return (
            requeued[missing, "requeued"] >= 1
            and requeued[capped, "requeued"] > CAPPED // 2
            and waiting[capped,] > 0
            and in_bytes[capped,] > 0
        )

    wait_for(is_counted, WITHIN_S, "what is put back, and waits")
