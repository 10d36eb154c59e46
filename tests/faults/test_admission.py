"""Limits on pending records and on disk space: reading stops, and all records end once.

Below the disk reserve the proxy reads no new records and still delivers due ones.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.security.commands import run_check
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing
from tests.support.waiting import wait_for
from tools.soak.small_disk import FILLER, free, small_disk

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 2
ROOM = 400
SENT, HALVES = 20_000, 20
DELAY_MS = 30_000
WITHIN_S = 120
RECORD_BYTES = 40
FIRST, THEN = 200, 300
LEFT_BYTES = 8 << 20


def _flood(targets: list[str]) -> Iterator[Outgoing]:
    """Yield the flood. At its end some records are cancelled, and half messages are decided."""
    for number in range(SENT):
        headers = [
            ("timer-topic", targets[number % len(targets)].encode()),
            ("timer-delay", b"%d" % DELAY_MS),
        ]
        if number % 5 == 0:
            headers.append(("timer-id", b"%d" % number))
        yield Outgoing(b"%d" % number, b"value", headers)
    for ident in range(0, SENT, 50):
        yield Outgoing(b"%d" % ident, None, [("timer-cancel", b"%d" % ident)])
    for number in range(HALVES):
        key, named = b"half-%d" % number, ("timer-id", b"half-%d" % number)
        half = [named, ("timer-topic", targets[0].encode()), ("timer-transaction", b"prepare")]
        yield Outgoing(key, b"half", half)
        yield Outgoing(key, None, [named, ("timer-transaction", b"commit")])


@pytest.mark.parametrize("unit", ["records", "bytes"])
def test_a_full_partition_is_read_on_as_room_is_made_and_all_arrive_once(
    installation: Installation, auditor: Auditor, unit: str
) -> None:
    """Above the limit nothing is read. The disk is lost while reading is paused. The proxy then
    reads the partitions again to their ends."""
    targets = [installation.target(name) for name in ("orders", "bills")]
    limits = {"records": ROOM} if unit == "records" else {"bytes": ROOM * RECORD_BYTES}
    proxy = installation.proxy(admission=limits)
    proxy.start_ready()
    installation.send(_flood(targets))
    wait_for(lambda: _full(proxy) == PARTITIONS, WITHIN_S, "all partitions are full")
    waiting = proxy.metric("delay_proxy_pending_records")
    assert waiting < SENT / 2, "the rest is not read"
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    ends = installation.judge(180)
    assert ends.counts["cancelled"] >= 1
    assert _full(proxy) == 0
    auditor.confirm(installation, ends)


def test_below_its_reserve_a_disk_takes_no_new_records_and_none_is_lost(
    installation: Installation,
) -> None:
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


def test_an_instance_without_room_takes_no_partition_from_one_that_serves(
    installation: Installation,
) -> None:
    healthy, full = installation.proxy("healthy"), installation.proxy("full")
    healthy.start_ready()
    with small_disk(full.data_dir) as is_mounted:
        if not is_mounted:
            pytest.skip("no file system may be mounted here")
        with _filled(full.data_dir):
            full.start()
            said = "leaves its partitions to other instances"
            wait_for(lambda: said in full.log, WITHIN_S, said)
            assert healthy.shards() == PARTITIONS
            assert full.shards() == -1
        wait_for(lambda: healthy.shards() == full.shards() == 1, WITHIN_S, "each serves one")


def test_the_only_instance_says_that_its_disk_has_no_room_for_a_partition(
    installation: Installation,
) -> None:
    target = installation.target("orders")
    proxy = installation.proxy(disk_reserve=0)
    with small_disk(proxy.data_dir) as is_mounted:
        if not is_mounted:
            pytest.skip("no file system may be mounted here")
        with _filled(proxy.data_dir):
            proxy.start()
            _await_held(proxy, 1)
            installation.send(_plain(target, FIRST, 100))
            assert "there is room for 0 of 2" in run_check(proxy).out
        _await_held(proxy, 0)
        assert installation.judge(180).counts["delivered"] == FIRST


def _await_held(proxy: ProxyProcess, held: int) -> None:
    wait_for(lambda: proxy.metric("delay_proxy_disk_full") == held, WITHIN_S, f"disk held: {held}")


def _plain(target: str, count: int, delay_ms: int) -> Iterator[Outgoing]:
    headers = [("timer-topic", target.encode()), ("timer-delay", b"%d" % delay_ms)]
    for number in range(count):
        yield Outgoing(b"%d" % number, b"value", headers)


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    left = os.statvfs(folder)
    with (folder / FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - LEFT_BYTES)
    yield
    free(folder)


def _full(proxy: ProxyProcess) -> float:
    lines = proxy.get("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'state="full"' in line)
