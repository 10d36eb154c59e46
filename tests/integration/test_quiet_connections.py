"""Brokers close idle connections, and may come back at other addresses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proxy.embedded.server import pick_free
from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

IDLE_MS = 1_500
"""Idle time of the broker's connections. The default is 600,000 ms."""
QUIET_S = 2.5
RECORDS = 10
LATE_MS = 1_000
"""A client that bootstraps again exceeds this in one case of four."""


def test_records_after_a_quiet_time_are_on_time(own_broker: StartBroker, tmp_path: Path) -> None:
    broker = own_broker(overrides={"connections.max.idle.ms": str(IDLE_MS)})
    installation = Installation(broker.bootstrap_servers, tmp_path, partitions=1)
    try:
        asked = [("timer-topic", installation.target().encode()), ("timer-delay", b"1s")]
        installation.proxy().start_ready()
        for _ in range(RECORDS):
            time.sleep(QUIET_S)
            installation.send([Outgoing(headers=asked)])
        ends = installation.judge()
        assert ends.counts == {"delivered": RECORDS}
        assert max(ends.lateness_ms) < LATE_MS
    finally:
        installation.close()


def test_brokers_that_come_back_elsewhere_are_found(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    """Only `bootstrap.servers` has the new address: clients keep their known brokers."""
    broker = own_broker()
    other_port = pick_free(broker.host)
    installation = Installation(broker.bootstrap_servers, tmp_path, partitions=1)
    try:
        both = f"{broker.bootstrap_servers},{broker.host}:{other_port}"
        session = installation.kafka()
        proxy = installation.proxy(kafka={**session, "bootstrap.servers": both})
        target = installation.target()
        proxy.start_ready()
        broker.stop()
        broker = own_broker(port=other_port)
        installation.bootstrap = broker.bootstrap_servers
        installation.send([Outgoing(headers=[("timer-topic", target.encode())])])
        assert installation.judge().counts == {"delivered": 1}
    finally:
        installation.close()
