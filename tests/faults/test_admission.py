"""More records than may wait: what finds no room ends at once, and stays ended over any crash."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.installation.installation import Installation
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 2
ROOM, ROOM_OF_ONE = 400, 100
SENT, HALVES = 3_000, 20
DELAY_MS = 30_000
SHED_WITHIN_S = 120


def _flood(targets: list[str]) -> Iterator[Outgoing]:
    """Some share an id: these take each other's place. Late ones have ids of their own: of these
    some find no room, and whoever cancels them is told that nothing waits; so do half messages."""
    for number in range(SENT):
        headers = [
            ("timer-topic", targets[number % len(targets)].encode()),
            ("timer-delay", b"%d" % DELAY_MS),
        ]
        if number % 5 == 0:
            ident = number % 7 if number < SENT // 2 else number
            headers.append(("timer-id", b"%d" % ident))
        yield Outgoing(b"%d" % number, b"value", headers)
    for ident in (*range(7), *range(SENT // 2, SENT, 50)):
        yield Outgoing(b"%d" % ident, None, [("timer-cancel", b"%d" % ident)])
    for number in range(HALVES):
        key, named = b"half-%d" % number, ("timer-id", b"half-%d" % number)
        half = [named, ("timer-topic", targets[0].encode()), ("timer-transaction", b"prepare")]
        yield Outgoing(key, b"half", half)
        yield Outgoing(key, None, [named, ("timer-transaction", b"commit")])


def test_what_finds_no_room_is_shed_once_whatever_happens(
    installation: Installation, auditor: Auditor
) -> None:
    """The disk is lost between being shed and being due: all is read again."""
    targets = [installation.target(name) for name in ("orders", "bills", "one")]
    admission = {"records": ROOM, "per_target": {targets[2]: ROOM_OF_ONE}}
    proxy = installation.proxy(admission=admission)
    proxy.start_ready()
    installation.send(_flood(targets))
    installation.await_ingested()
    least = SENT - PARTITIONS * ROOM - SENT // 10
    wait_for(lambda: _shed(proxy.get("/metrics")[1]) >= least, SHED_WITHIN_S, "records shed")
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    ends = installation.judge(180)
    assert 0 < ends.counts["delivered"] <= PARTITIONS * ROOM
    assert ends.counts["dead-lettered"] >= least
    to_one = [p for found in ends.deliveries.values() for p in found if p.topic == targets[2]]
    assert 0 < len(to_one) <= PARTITIONS * ROOM_OF_ONE
    outcomes = [one for found in ends.outcomes.values() for one in found]
    details = [str(one["detail"]) for one in outcomes if one["outcome"] == "dead-lettered"]
    assert all(detail.startswith("too-many: ") for detail in details)
    auditor.confirm(installation, ends)


def _shed(metrics: str) -> float:
    lines = (line for line in metrics.splitlines() if 'reason="too-many"' in line)
    return sum(float(line.rpartition(" ")[2]) for line in lines)
