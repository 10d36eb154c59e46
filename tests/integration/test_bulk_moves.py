"""All pending records that a filter chooses are moved, on a real broker with kills."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration
WITHIN_S = 180
RECORDS, OTHERS = 300, 20


def asking(target: str, delay: bytes, number: int) -> Outgoing:
    named = [("timer-id", b"id-%d" % number)] if number % 2 else []
    headers = [("timer-topic", target.encode()), ("timer-delay", delay), *named]
    return Outgoing(b"key-%d" % number, b"value %d" % number, headers, number % 2)


def moved(proxy: ProxyProcess, body: dict[str, Any]) -> Any:
    code, said = call(proxy, "POST", "/moves", body)
    assert code == 200, said
    return said


def move_all(proxy: ProxyProcess, body: dict[str, Any], confirm: str | None) -> int:
    records = 0
    while confirm is not None:
        said = moved(proxy, {**body, "dry_run": False, "confirm": confirm})
        records, confirm = records + said["records"], said["confirm"]
    return records


def dues(proxy: ProxyProcess) -> list[int]:
    return [
        call(proxy, "GET", f"/records?id=id-{number}")[1]["records"][0]["due"]
        for number in (1, 77, RECORDS - 1)
    ]


def command(proxy: ProxyProcess, *asked: str) -> tuple[int, Any]:
    said = [sys.executable, "-m", "proxy", "move", *asked, "--admin", api_address(proxy), "--json"]
    done = subprocess.run(said, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("bodies", ["local", "kafka"])
def test_records_of_a_filter_are_moved_once_through_a_kill_and_a_repetition(
    installation: Installation, bodies: Any
) -> None:
    target, other = installation.target("orders"), installation.target("bills")
    proxy = installation.proxy(bodies=bodies, roll_after="30m")
    proxy.start_ready()
    installation.send(asking(target, b"1h", number) for number in range(RECORDS))
    installation.send(asking(other, b"1h", 1_000 + number) for number in range(OTHERS))
    installation.await_ingested()
    before = dues(proxy)
    later = {"targets": target, "later": "2h"}
    plan = moved(proxy, {**later, "dry_run": True})
    assert (plan["records"], plan["cut"], len(plan["sample"])) == (RECORDS, False, 10)
    first = {**later, "dry_run": False, "confirm": plan["confirm"]}
    # Killed in the middle: the call's reply is lost, and a part of the moves may be written.
    with subprocess.Popen(
        [sys.executable, "-c", POST, api_address(proxy), json.dumps(first)],
        stderr=subprocess.DEVNULL,
    ) as asked:
        ended = installation.ends_so_far
        wait_for(lambda: ended() > 0, WITHIN_S, "some moves")
        proxy.kill()
        asked.wait(WITHIN_S)
    proxy.start_ready()
    installation.await_ingested()
    move_all(proxy, later, plan["confirm"])
    assert move_all(proxy, later, plan["confirm"]) == 0, "nothing is moved twice"
    assert dues(proxy) == [due + 7_200_000 for due in before], "not from the time of a rewrite"
    installation.send([asking(target, b"1h", 5_000)])  # not in the dry run, so it stays
    installation.await_ingested()
    assert move_all(proxy, later, plan["confirm"]) == 0
    named = {"targets": target, "id_prefix": "id-", "deliver_at": "now", "dry_run": True}
    assert moved(proxy, named)["records"] == (RECORDS // 2 if bodies == "local" else 0)
    assert command(proxy, target, "--at", "now", "--yes")[1]["records"] == RECORDS + 1
    assert command(proxy, other, "--at", "now", "--yes")[0] == 0
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 0, WITHIN_S, "all delivered")
    values = [one.value or b"" for one in read_to_end(installation.bootstrap, target, RECORDS + 1)]
    assert sorted(values) == sorted(b"value %d" % n for n in (*range(RECORDS), 5_000))
    counts = installation.judge().counts
    assert counts["delivered"] == RECORDS + 1 + OTHERS


def test_a_record_that_fires_in_the_meantime_is_delivered_once(installation: Installation) -> None:
    target, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    installation.send(asking(target, b"40s", number) for number in range(50))
    installation.send(asking(target, b"1h", 100 + number) for number in range(50))
    installation.await_ingested()
    body = {"targets": "*", "deliver_at": int(time.time() * 1000) + 3_600_000}
    plan = moved(proxy, {**body, "dry_run": True})
    assert plan["records"] == 100
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 50, WITHIN_S, "half of them")
    assert move_all(proxy, body, plan["confirm"]) == 50
    assert command(proxy, "*", "--at", "now", "--yes")[1]["outcomes"] == {"replaced": 50}
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 0, WITHIN_S, "all delivered")
    assert installation.judge().counts["delivered"] == 100


POST = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=120)
connection.request("POST", "/api/v1/moves", sys.argv[2], {"Content-Type": "application/json"})
connection.getresponse()
"""
