"""Partitions added to the ingress of running proxies."""

from __future__ import annotations

import pytest
from confluent_kafka.cimpl import NewPartitions

from tests.support.installation.installation import Installation
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
"""librdkafka's own refresh interval is 300 s."""


def test_added_partitions_are_served_soon_and_said(installation: Installation) -> None:
    headers = [("timer-topic", installation.target().encode())]
    proxies = [installation.proxy(name) for name in ("one", "two")]
    for proxy in proxies:
        proxy.start_ready()
    admin = admin_client(installation.bootstrap)
    more = NewPartitions(installation.ingress, 4)
    admin.create_partitions([more])[installation.ingress].result(WITHIN_S)
    installation.send([Outgoing(headers=headers, partition=number) for number in range(4)])

    installation.await_ends(4, WITHIN_S)
    wait_for(
        lambda: all("partitions were added" in proxy.log for proxy in proxies),
        WITHIN_S,
        "a word about it",
    )
    assert [p.metric("delay_proxy_ingress_partitions") for p in proxies] == [4.0, 4.0]
    installation.stop_proxies()
