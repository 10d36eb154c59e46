"""Transactional producers: only their committed records are requests."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from tests.support.installation.installation import Installation
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

TIMEOUT_S = 180
WAITS_S = 20
STAYS_OPEN = {"transaction.timeout.ms": 600_000}
"""The test ends the transaction. A proxy may start more slowly than the default allows."""


def _transaction(installation: Installation, topic: str, values: list[bytes]) -> Producer:
    settings = {"bootstrap.servers": installation.bootstrap, **STAYS_OPEN}
    producer = Producer({**settings, "transactional.id": f"{topic}-{values[0].decode()}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(installation.ingress, value, b"k", headers={"timer-topic": topic})
    producer.flush(TIMEOUT_S)
    return producer


def test_aborted_requests_never_fire_and_open_ones_hold_back_what_follows(
    installation: Installation,
) -> None:
    topic = installation.target()
    aborted = _transaction(installation, topic, [b"aborted-1", b"aborted-2"])
    proxy = installation.proxy()
    proxy.start()
    opened = _transaction(installation, topic, [b"opened-1", b"opened-2"])
    committed = _transaction(installation, topic, [b"behind-it"])
    committed.commit_transaction(TIMEOUT_S)

    assert installation.ends_so_far() == 0
    assert proxy.shards() == -1, "an open transaction is part of what has to be caught up with"
    aborted.abort_transaction(TIMEOUT_S)
    opened.commit_transaction(TIMEOUT_S)

    ends = installation.judge()
    values = [p.record.value for found in ends.deliveries.values() for p in found]
    assert values == [b"opened-1", b"opened-2", b"behind-it"]


def test_after_a_takeover_what_waits_is_held_until_an_open_transaction_can_be_read(
    installation: Installation,
) -> None:
    """A cancel lies behind the transaction. It was written before the takeover."""
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    due_s = time.time() + WAITS_S
    due = b"%d" % (due_s * 1000)
    asked = [("timer-topic", topic.encode()), ("timer-deliver-at", due), ("timer-id", b"a")]
    installation.send([Outgoing(b"k", b"cancelled", asked)])
    installation.await_ingested()
    proxy.kill()
    assert time.time() < due_s, "it was read too late"
    opened = _transaction(installation, topic, [b"opened"])
    installation.send([Outgoing(b"k", None, [("timer-cancel", b"a")])])
    proxy.start()
    wait_for(lambda: '"shard taken over"' in proxy.log, TIMEOUT_S, "shards taken over")
    wait_for(lambda: time.time() > due_s + 1, TIMEOUT_S, "its due")

    assert (proxy.shards(), installation.ends_so_far()) == (-1, 0)
    opened.commit_transaction(TIMEOUT_S)

    ends = installation.judge()
    values = [p.record.value for found in ends.deliveries.values() for p in found]
    assert values == [b"opened"]
