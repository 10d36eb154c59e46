"""More than may wait: what finds no room ends at once, and stays ended over any crash.

Less left on the disk than its reserve: nothing new is read, and what is due goes out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.soak.small_disk import FILLER, free, small_disk
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 2
ROOM, ROOM_OF_ONE = 400, 100
SENT, HALVES = 3_000, 20
DELAY_MS = 30_000
SHED_WITHIN_S = 120
LEAST_BYTES, MEAN_BYTES = 20, 40
"""What a record of the flood takes at least; and what is made room for."""
FIRST, THEN = 200, 300
LEFT_BYTES = 8 << 20


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


def test_bytes_that_find_no_room_are_shed_once_whatever_happens(
    installation: Installation, auditor: Auditor
) -> None:
    """As above, counted in bytes."""
    targets = [installation.target(name) for name in ("orders", "bills", "one")]
    admission = {
        "bytes": ROOM * MEAN_BYTES,
        "bytes_per_target": {targets[2]: ROOM_OF_ONE * MEAN_BYTES},
    }
    proxy = installation.proxy(admission=admission)
    proxy.start_ready()
    installation.send(_flood(targets))
    installation.await_ingested()
    most = PARTITIONS * ROOM * MEAN_BYTES // LEAST_BYTES
    least = SENT - most - SENT // 10
    wait_for(lambda: _shed(proxy.get("/metrics")[1]) >= least, SHED_WITHIN_S, "records shed")
    wait_for(lambda: proxy.metric("delay_proxy_shard_pending_bytes") > 0, SHED_WITHIN_S, "bytes")
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    ends = installation.judge(180)
    assert 0 < ends.counts["delivered"] <= most
    assert ends.counts["dead-lettered"] >= least
    outcomes = [one for found in ends.outcomes.values() for one in found]
    details = [str(one["detail"]) for one in outcomes if one["outcome"] == "dead-lettered"]
    assert any("(admission.bytes)" in detail for detail in details)
    assert all(detail.startswith("too-many: ") for detail in details)
    auditor.confirm(installation, ends)


def test_below_its_reserve_a_disk_takes_no_new_records_and_none_is_lost(
    installation: Installation,
) -> None:
    """A small disk is filled from outside while records wait, and freed again."""
    target = installation.target("orders")
    proxy = installation.proxy()
    with small_disk(proxy.data_dir) as is_mounted:
        if not is_mounted:
            pytest.skip("no file system may be mounted here")
        proxy.start_ready()
        installation.send(_plain(target, FIRST, 10_000))
        installation.await_ingested()
        with _filled(proxy.data_dir):
            _await_held(proxy, 1)
            installation.send(_plain(target, THEN, 100))
            installation.await_ends(FIRST)
            assert installation.ends_so_far() == FIRST, "what came since is not read"
            proxy.kill()
            proxy.start_ready()
            installation.await_ends(FIRST + THEN)
            _await_held(proxy, 1)
            installation.send(_plain(target, THEN, 100))
        _await_held(proxy, 0)
        ends = installation.judge(180)
        assert ends.counts["delivered"] == FIRST + 2 * THEN


def _await_held(proxy: ProxyProcess, held: int) -> None:
    wait_for(lambda: proxy.metric("delay_proxy_disk_held") == held, 30, f"disk held: {held}")


def _plain(target: str, count: int, delay_ms: int) -> Iterator[Outgoing]:
    headers = [("timer-topic", target.encode()), ("timer-delay", b"%d" % delay_ms)]
    for number in range(count):
        yield Outgoing(b"%d" % number, b"value", headers)


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """All but a few megabytes of its file system are taken by somebody else."""
    left = os.statvfs(folder)
    with (folder / FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - LEFT_BYTES)
    yield
    free(folder)


def _shed(metrics: str) -> float:
    lines = (line for line in metrics.splitlines() if 'reason="too-many"' in line)
    return sum(float(line.rpartition(" ")[2]) for line in lines)
