"""A batch of 4.6 kB with 150 MB that no client can read is detected and skipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.unreadable_batch import (
    BATCH_RECORDS,
    unreadable_at,
    write_unreadable_batch,
)
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
BEFORE, BEHIND = 6, 4
END = BEFORE + BATCH_RECORDS + BEHIND


def command(*arguments: str, proxy: ProxyProcess) -> tuple[int, Any]:
    asked = [*arguments, "--admin", api_address(proxy), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *asked],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def asking(target: str, delay: bytes, partition: int = 0) -> Outgoing:
    asked = [("timer-topic", target.encode()), ("timer-delay", delay)]
    return Outgoing(b"key", b"value", asked, partition)


def refused(proxy: ProxyProcess, partition: int, offset: int) -> str:
    code, said = call(proxy, "POST", "/skips", {"partition": partition, "offset": offset})
    assert code == 409, said
    return str(said["error"])


def series(proxy: ProxyProcess, name: str) -> float:
    lines = proxy.get("/metrics")[1].splitlines()
    found = (line.rpartition(" ") for line in lines)
    return next((float(value) for named, _, value in found if named == name), -1)


def next_offset(proxy: ProxyProcess) -> float:
    return series(proxy, 'delay_proxy_next_offset{partition="0"}')


def origins(installation: Installation, topic: str) -> Counter[str]:
    found = (record.header("timer-origin") for record in read_to_end(installation.bootstrap, topic))
    return Counter(origin.decode() for origin in found if origin)


def test_it_is_seen_and_skipped_with_a_dead_letter_for_each_of_its_records(
    installation: Installation,
) -> None:
    target, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    installation.send([asking(target, b"15s") for _ in range(BEFORE - 1)])
    installation.send([asking(target, b"30m")])
    installation.await_ingested()
    write_unreadable_batch(installation)
    installation.send([asking(target, b"0") for _ in range(BEHIND)])
    installation.send([asking(target, b"0", 1)])
    wait_for(lambda: unreadable_at(proxy) == [(0, BEFORE)], WITHIN_S, "the state")
    state = 'delay_proxy_shard_state{partition="0",state="unreadable"}'
    wait_for(lambda: series(proxy, state) == 1, WITHIN_S, "the metric")
    assert "the ingress cannot be read beyond this offset" in proxy.log
    assert series(proxy, 'delay_proxy_unreadable_offset{partition="0"}') == BEFORE
    wait_for(lambda: sum(origins(installation, target).values()) == BEFORE, WITHIN_S, "what is due")

    assert refused(proxy, 0, BEFORE - 1) == "other-batch"
    assert refused(proxy, 0, BEFORE + 1) == "other-batch"
    assert refused(proxy, 1, BEFORE) == "readable"
    place = ("skip", "--partition", "0", "--offset", str(BEFORE))
    code, said = command(*place, "--dry-run", proxy=proxy)
    assert (code, said["end"], said["dry_run"]) == (0, BEFORE + BATCH_RECORDS, True)
    assert (unreadable_at(proxy), next_offset(proxy)) == ([(0, BEFORE)], BEFORE)
    code, said = command(*place, proxy=proxy)
    assert (code, said["end"], said["in_force"]) == (0, BEFORE + BATCH_RECORDS, True)
    wait_for(lambda: not unreadable_at(proxy), WITHIN_S, "the shard")
    installation.await_ingested()
    assert refused(proxy, 0, BEFORE) == "readable"
    _assert_ends(installation, target)
    _assert_replayed(installation, proxy, target)


def _assert_ends(installation: Installation, target: str) -> None:
    bad = [f"{installation.ingress}/0/{BEFORE + number}" for number in range(BATCH_RECORDS)]
    wait_for(
        lambda: sum(origins(installation, target).values()) == BEFORE + BEHIND,
        WITHIN_S,
        "what lies behind",
    )
    letters = read_to_end(installation.bootstrap, installation.dead_letters)
    assert origins(installation, installation.dead_letters) == Counter(bad)
    assert {(one.header("timer-error"), one.value) for one in letters} == {
        (b"record-unreadable", None)
    }
    assert set(origins(installation, target).values()) == {1}


def _assert_replayed(installation: Installation, proxy: ProxyProcess, target: str) -> None:
    """Check that all is read again: the pending record keeps the floor before the batch."""
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    assert unreadable_at(proxy) == []
    installation.send([asking(target, b"0")])
    installation.await_ingested()
    wait_for(
        lambda: sum(origins(installation, target).values()) == BEFORE + BEHIND + 1,
        WITHIN_S,
        "a new record",
    )
    wait_for(lambda: next_offset(proxy) == END + 1, WITHIN_S, "the metric to follow")
    _assert_once(installation, target)
    code, said = call(proxy, "GET", f"/records/{installation.ingress}/0/{BEFORE}/trace")
    assert (code, [step["what"] for step in said["steps"]]) == (
        200,
        ["unreadable", "dead-lettered"],
    )


def _assert_once(installation: Installation, target: str) -> None:
    assert set(origins(installation, target).values()) == {1}
    assert sum(origins(installation, installation.dead_letters).values()) == BATCH_RECORDS
