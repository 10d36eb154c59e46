"""Broker quotas that throttle the proxy cost time, but no session."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.quiet_clients import QUIET
from tests.support.quotas import set_quota

pytestmark = pytest.mark.integration

CLIENT_ID = "throttled"
SHORT_WINDOW = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""The broker then allows a burst of one second instead of ten, which shortens the test."""
BYTES_A_SECOND = 100_000
RECORDS, SIZE_BYTES = 1_500, 1_000
"""All are overdue and read at once. The broker takes their bytes only after the time of one
transaction."""
LARGE_BYTES = 900_000
"""Extra size of one record, which would make its offset commit too late."""
ENDED_WITHIN_S = 240


def _send_in_one_transaction(bootstrap: str, topic: str, headers: dict[str, str]) -> None:
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(ENDED_WITHIN_S)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, bytes(SIZE_BYTES), b"k%d" % number, headers=list(headers.items()))
    producer.produce(topic, bytes(LARGE_BYTES), b"large", headers=list(headers.items()))
    producer.commit_transaction(ENDED_WITHIN_S)


def test_more_than_a_quota_lets_through_is_delivered_later_by_the_same_session(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    bootstrap = own_broker(overrides=SHORT_WINDOW).bootstrap_servers
    set_quota(bootstrap, CLIENT_ID, "producer_byte_rate", BYTES_A_SECOND)
    installation = Installation(bootstrap, tmp_path, partitions=2)
    try:
        proxy = installation.proxy(
            kafka=installation.kafka(**{"client.id": CLIENT_ID, "session.timeout.ms": "30000"})
        )
        asked = {"timer-topic": installation.target(partitions=3), "timer-deliver-at": "1"}
        proxy.start_ready()
        began_s = time.monotonic()
        _send_in_one_transaction(bootstrap, installation.ingress, asked)
        installation.await_ends(RECORDS + 1, ENDED_WITHIN_S)
        took_s = time.monotonic() - began_s
        assert proxy.metric("delay_proxy_sessions_lost_total") == 0, proxy.log_tail()
        throttled_s = proxy.metric("delay_proxy_throttled_seconds_total")
        assert throttled_s > 1
        lines = [line for line in proxy.log.splitlines() if "throttles the proxy" in line]
        said = [json.loads(line)["direction"] for line in lines]
        assert set(said) == {"writing"}
        assert 1 <= len(said) <= 1 + took_s / 60, "once a minute"
        set_quota(bootstrap, CLIENT_ID, "producer_byte_rate", 1e12)
        ends = installation.judge(ENDED_WITHIN_S)
        assert ends.counts == {"delivered": RECORDS + 1}
    finally:
        installation.close()
