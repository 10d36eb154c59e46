"""Several instances on one broker: any of them answers for all, and says who does not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.clock import wall_clock_ms
from tests.support.installation.admin_client import call
from tests.support.installation.certificates import Authority
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
RECORDS = 12
HOUR_MS = 3_600_000
SESSION_MS = 40_000
"""A killed instance keeps its partitions for this long, while commands show the gap."""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def request(target: str, ident: str) -> Outgoing:
    headers = [("timer-topic", target.encode()), ("timer-delay", b"PT10M")]
    return Outgoing(ident.encode(), b"value", [*headers, ("timer-id", ident.encode())])


def started(installation: Installation, names: list[str]) -> list[ProxyProcess]:
    ports = free_ports(len(names))
    peers = [f"http://127.0.0.1:{port}" for port in ports]
    kafka = installation.kafka(**{"session.timeout.ms": str(SESSION_MS)})
    proxies = [
        installation.proxy(name, kafka=kafka, admin={"port": port, "peers": peers})
        for name, port in zip(names, ports, strict=True)
    ]
    for proxy in proxies:
        proxy.start()
    for proxy in proxies:
        proxy.await_shards(1)
    return proxies


def get(proxy: ProxyProcess, path: str) -> Any:
    status, said = call(proxy, "GET", path)
    assert status == 200, said
    return said


def run_command(proxy: ProxyProcess, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "proxy", *words, "--config", str(proxy.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_any_instance_answers_for_all_and_says_who_was_killed(installation: Installation) -> None:
    target = installation.target()
    one, other = started(installation, ["one", "other"])
    installation.send([request(target, f"order-{number}") for number in range(RECORDS)])
    wait_for(lambda: get(one, "/pending")["pending"] == RECORDS, WITHIN_S, "all records")
    for proxy in (one, other):
        wait_for(lambda: get(proxy, "/instances")["complete"], WITHIN_S, "both instances")  # noqa: B023
        shown = get(proxy, "/instances")
        assert {each["name"] for each in shown["instances"]} == {"one", "other"}
        assert (shown["pending"], shown["unanswered"]) == (RECORDS, [])
        page = get(proxy, "/pending/records?limit=5")
        listed = [each["id"] for each in page["records"]]
        while page["cursor"] is not None:
            page = get(proxy, f"/pending/records?limit=5&cursor={page['cursor']}")
            listed += [each["id"] for each in page["records"]]
        assert sorted(listed) == sorted(f"order-{number}" for number in range(RECORDS))
        for ident in listed:
            (found,) = get(proxy, f"/records?id={ident}")["records"]
            assert get(proxy, f"/records/{found['origin']}?body=true")["key"]["text"] == ident
    code, said = run_command(other, "instances")
    assert (code, f"2 of 2 instances answered: {RECORDS} records pending" in said) == (0, True), (
        said
    )

    (found,) = get(one, "/records?id=order-3")["records"]
    for hours, proxy in ((1, one), (2, other)):
        body = {"deliver_at": wall_clock_ms() + hours * HOUR_MS}
        moved = call(proxy, "PATCH", f"/records/{found['origin']}?wait=30s", body)
        assert (moved[0], moved[1]["outcome"]) == (200, "replaced"), moved
        found = {"origin": moved[1]["origin"]}
    for number in range(2):
        cancelled = call(
            (one, other)[number], "POST", "/cancellations?wait=30s", {"id": f"order-{number}"}
        )
        assert (cancelled[0], cancelled[1]["outcome"]) == (200, "applied"), cancelled

    other.kill()
    shown = get(one, "/instances")
    assert not shown["complete"]
    assert (len(shown["partitions_missing"]), len(shown["unanswered"])) == (1, 1)
    code, said = run_command(one, "pending")
    assert (code, "other" in said) == (1, True), said
    one.await_shards(2)
    wait_for(lambda: get(one, "/instances")["complete"], WITHIN_S, "the successor")
    assert get(one, "/pending")["pending"] == RECORDS - 2


def move(proxy: ProxyProcess, body: dict[str, Any]) -> Any:
    status, said = call(proxy, "POST", "/moves", body)
    assert status == 200, said
    return said


def test_a_bulk_move_covers_all_instances_through_a_kill(installation: Installation) -> None:
    target, count = installation.target(), 60
    one, other = started(installation, ["one", "other"])
    installation.send([request(target, f"order-{number}") for number in range(count)])
    wait_for(lambda: get(one, "/pending")["pending"] == count, WITHIN_S, "all records")
    wait_for(lambda: get(one, "/instances")["complete"], WITHIN_S, "both instances")
    installation.await_ingested()
    shown = get(other, "/instances")["instances"]
    at_other = next(each["pending"] for each in shown if each["name"] == "other")
    assert 0 < at_other < count, "both have some"
    later = {"targets": target, "later": "1h"}
    for proxy in (one, other):
        plan = move(proxy, {**later, "dry_run": True})
        assert (plan["records"], plan["complete"], plan["partitions"]) == (count, True, [0, 1])
    first_dues = (plan["first_due"], plan["last_due"])
    real = {**later, "dry_run": False, "confirm": plan["confirm"]}
    moved = move(other, real)
    assert (moved["records"], moved["confirm"], moved["complete"]) == (count, None, True)
    assert [move(proxy, real)["records"] for proxy in (one, other)] == [0, 0]
    installation.await_ingested()
    plan = move(one, {**later, "dry_run": True})
    assert (plan["first_due"], plan["last_due"]) == tuple(due + HOUR_MS for due in first_dues)

    other.kill()
    alone = move(one, {**later, "dry_run": True})
    assert (alone["records"], alone["complete"]) == (count - at_other, False)
    assert len(alone["unanswered"]) == 1
    real = {**later, "dry_run": False, "confirm": plan["confirm"]}
    moved = move(one, real)
    assert (moved["records"], moved["complete"]) == (count - at_other, False)
    assert len(moved["unanswered"]) == 1
    real["confirm"] = moved["confirm"]
    code, said = run_command(one, "move", target, "--later", "1h", "--dry-run")
    assert (code, "other" in said) == (1, True), said
    one.await_shards(2)
    wait_for(lambda: get(one, "/instances")["complete"], WITHIN_S, "the successor")
    moved = move(one, real)
    assert (moved["records"], moved["confirm"], moved["complete"]) == (at_other, None, True)
    assert move(one, real)["records"] == 0
    plan = move(one, {**later, "dry_run": True})
    assert plan["records"] == count
    assert (plan["first_due"], plan["last_due"]) == tuple(due + 2 * HOUR_MS for due in first_dues)
    code, said = run_command(one, "move", target, "--at", "now", "--yes")
    assert (code, f"{count} records moved" in said) == (0, True), said
    wait_for(lambda: get(one, "/pending")["pending"] == 0, WITHIN_S, "all delivered")
    assert installation.judge().counts["delivered"] == count


def test_an_instance_that_no_peer_leads_to_is_named(installation: Installation) -> None:
    one, other = installation.proxy("one"), installation.proxy("other")
    for proxy in (one, other):
        proxy.start()
    for proxy in (one, other):
        proxy.await_shards(1)
    wait_for(
        lambda: [each["instance"] for each in get(one, "/pending")["unanswered"]] == ["other"],
        WITHIN_S,
        "the other instance",
    )
    assert get(one, "/pending")["complete"] is False


def test_three_instances_ask_each_other_with_tls_and_name_an_expired_certificate(
    installation: Installation, tmp_path: Path
) -> None:
    authority, names, target = Authority(), ["one", "two", "three"], installation.target()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    ports = free_ports(len(names))
    peers = [f"https://127.0.0.1:{port}" for port in ports]
    proxies = []
    for name, port in zip(names, ports, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        authority.issue(name, ["127.0.0.1"]).write(folder)
        tls = {
            "certificate": str(folder / "certificate.pem"),
            "key": str(folder / "key.pem"),
            "ca": str(tmp_path / "ca.pem"),
        }
        admin = {"port": port, "peers": peers, "tls": tls, "token": "a-token-that-nobody-guesses"}
        proxies.append(installation.proxy(name, admin=admin))
    for proxy in proxies:
        proxy.start()
    one, two, _ = proxies
    wait_for(lambda: run_command(one, "instances")[0] == 0, WITHIN_S, "all partitions")
    installation.send([request(target, f"order-{number}") for number in range(RECORDS)])
    wait_for(lambda: pending(one) == (RECORDS, True), WITHIN_S, "all records")
    for proxy in proxies:
        code, said = run_command(proxy, "instances")
        assert (code, "3 of 3 instances answered" in said) == (0, True), said

    authority.issue("three", ["127.0.0.1"], timedelta(minutes=-1)).write(tmp_path / "three")
    wait_for(lambda: not pending(one)[1], WITHIN_S, "a refused certificate")
    said = run_command(two, "instances")[1]
    assert ("2 of 3 instances answered" in said, "expired" in said) == (True, True), said
    authority.issue("three", ["127.0.0.1"]).write(tmp_path / "three")
    wait_for(lambda: pending(two) == (RECORDS, True), WITHIN_S, "the renewed certificate")


def pending(proxy: ProxyProcess) -> tuple[int, bool]:
    """Return the total of pending records, and whether all instances answered."""
    said = json.loads(run_command(proxy, "instances", "--json")[1])
    return said["pending"], said["complete"] and not said["unanswered"]
