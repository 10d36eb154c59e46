"""A flood of undeliverable records does not delay the others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

BAD, GOOD = 40_000, 400
LEAD_MS, SPREAD_MS = 8_000, 2_000
TRANSACTIONS_AT_MOST = BAD // 10
"""One transaction per undeliverable record would need ten times as many."""


def _flood(topic: str) -> Iterator[Outgoing]:
    start_ms = time.time_ns() // 1_000_000 + LEAD_MS
    unknown = b"nobody-made-this-topic"
    for number in range(BAD):
        at = (b"%d" % (start_ms + number * SPREAD_MS // BAD), b"k%d" % number)
        yield Outgoing(at[1], b"bad", [("timer-topic", unknown), ("timer-deliver-at", at[0])])
        if number % (BAD // GOOD) == 0:
            headers = [("timer-topic", topic.encode()), ("timer-deliver-at", at[0])]
            yield Outgoing(at[1], b"good", headers)


def test_a_flood_for_an_unknown_topic_takes_few_transactions_and_the_good_arrive(
    installation: Installation,
) -> None:
    topic = installation.target()
    proxy = installation.proxy(retry={"max_attempts": 1})
    proxy.start_ready()

    installation.send(_flood(topic))
    installation.await_ends(BAD + GOOD)
    transactions = proxy.metric("delay_proxy_transactions_total")

    assert installation.judge().counts == {"delivered": GOOD, "dead-lettered": BAD}
    assert 0 < transactions < TRANSACTIONS_AT_MOST
