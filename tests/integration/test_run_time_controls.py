"""Operators change taking in and limits at run time, on two instances, over kills and restarts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.installation.admin_client import api_address
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180


def requests(target: str, count: int, *when: tuple[str, bytes]) -> list[Outgoing]:
    """For both partitions of the ingress."""
    return [
        Outgoing(b"%d" % n, b"value", [("timer-topic", target.encode()), *when], n % 2)
        for n in range(count)
    ]


def count(installation: Installation, target: str) -> int:
    return len(read_to_end(installation.bootstrap, target))


def two_proxies(installation: Installation, **more: Any) -> tuple[ProxyProcess, ProxyProcess]:
    first, second = installation.proxy("one", **more), installation.proxy("two", **more)
    first.start_ready()
    second.start_ready()
    first.await_shards(1)
    second.await_shards(1)
    return first, second


def command(*arguments: str, asked: tuple[ProxyProcess, ...]) -> Any:
    """What a command says in JSON, having asked these instances."""
    admin = [part for proxy in asked for part in ("--admin", api_address(proxy))]
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *arguments, *admin, "--json"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_with_taking_in_paused_what_waits_is_delivered_over_a_kill_and_nothing_more_is_read(
    installation: Installation,
) -> None:
    waiting, late = installation.target("waiting"), installation.target("late")
    both = two_proxies(installation)
    first, second = both
    installation.send(requests(waiting, 40, ("timer-delay", b"15s")))
    installation.await_ingested()
    assert command("pause", "--ingest", asked=both)["in_force"]
    installation.send(requests(late, 10))
    first.kill()
    first.start_ready()
    wait_for(lambda: first.metric("delay_proxy_ingest_paused") == 1, WITHIN_S, "the pause")
    assert json.loads(second.get("/readyz")[1])["ingest_paused"]
    second.await_shards(1)
    read = count(installation, late)
    installation.send(requests(late, 10))
    wait_for(lambda: count(installation, waiting) == 40, WITHIN_S, "what waits")
    wait_for(
        lambda: command("pauses", asked=both)["ingest"]["unread"] >= 10, WITHIN_S, "what is unread"
    )
    assert count(installation, late) in {read, 5, 10}, "what was there at a take-over, no more"
    assert command("resume", "--ingest", asked=(second,))["in_force"]
    wait_for(lambda: count(installation, late) == 20, WITHIN_S, "what was written meanwhile")
    assert len(installation.judge().deliveries) == 60


def test_limits_count_for_all_instances_outlive_restarts_and_are_cleared(
    installation: Installation,
) -> None:
    slow, dropped = installation.target("slow"), installation.target("dropped")
    long_ago = ("timer-deliver-at", b"1000")
    both = two_proxies(installation, release={"per_target": {slow: 1_000}})
    first, second = both
    rule = {"older_than": "1h", "action": "drop"}
    assert command("limits", "set", slow, "--per-second", "4", asked=both)["in_force"]
    said = command(
        "limits", "set", f"{installation.name}.drop*", "--overdue", "60m:drop", asked=both
    )
    assert (said["in_force"], said["overdue"]) == (True, rule)
    assert first.stop() == 0
    second.kill()
    for proxy in both:
        proxy.start_ready()
    limits = command("limits", asked=both)["limits"]
    assert [(one["pattern"], one["per_second"], one["source"]) for one in limits] == [
        (slow, 4, "run-time"),
        (f"{installation.name}.drop*", None, "run-time"),
        (slow, 1_000, "settings"),
    ]
    installation.send([*requests(dropped, 6, long_ago), *requests(slow, 40)])
    wait_for(lambda: count(installation, slow) == 40, WITHIN_S, "what is capped")
    stamps = [record.timestamp_ms for record in read_to_end(installation.bootstrap, slow)]
    assert max(stamps) - min(stamps) >= 3_000
    command("limits", "clear", f"{installation.name}.drop*", asked=both)
    installation.send(requests(dropped, 3, long_ago))
    wait_for(lambda: count(installation, dropped) == 3, WITHIN_S, "what is dropped no more")
    ends = installation.judge()
    outcomes = [o for told in ends.outcomes.values() for o in told if o["outcome"] == "expired"]
    assert len(outcomes) == 6
    assert all("allows 3600000 (release.overdue)" in str(o["detail"]) for o in outcomes)
