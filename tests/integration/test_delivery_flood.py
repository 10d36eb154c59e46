"""A flood of records nobody can deliver does not delay the others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

BAD, GOOD = 40_000, 400
LEAD_MS, SPREAD_MS = 8_000, 2_000
LATE_MS = 8_000
"""Generous: the flood's dead letters share a loaded machine with the broker that takes them."""


def _flood(topic: str) -> Iterator[Outgoing]:
    """All due within a few seconds, the good ones evenly among the bad."""
    start_ms = time.time_ns() // 1_000_000 + LEAD_MS
    unknown = b"nobody-made-this-topic"
    for number in range(BAD):
        at = (b"%d" % (start_ms + number * SPREAD_MS // BAD), b"k%d" % number)
        yield Outgoing(at[1], b"bad", [("timer-topic", unknown), ("timer-deliver-at", at[0])])
        if number % (BAD // GOOD) == 0:
            headers = [("timer-topic", topic.encode()), ("timer-deliver-at", at[0])]
            yield Outgoing(at[1], b"good", headers)


def test_good_records_are_on_time_among_many_for_an_unknown_topic(
    installation: Installation,
) -> None:
    topic = installation.target()
    installation.proxy(retry={"max_attempts": 1}).start_ready()

    installation.send(_flood(topic))

    ends = installation.judge()
    assert ends.counts == {"delivered": GOOD, "dead-lettered": BAD}
    lateness_ms = sorted(ends.lateness_ms)
    assert lateness_ms[GOOD * 99 // 100] < LATE_MS, lateness_ms[-10:]
