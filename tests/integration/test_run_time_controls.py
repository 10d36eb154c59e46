"""Operators change ingest and limits at run time, on two instances, across kills and restarts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.support.installation.admin_client import api_address
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
NOTICED_WITHIN_S = 60
ROUNDS = 6


def requests(target: str, count: int, *when: tuple[str, bytes]) -> list[Outgoing]:
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
    done = _run(*arguments, asked=asked)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _run(*arguments: str, asked: tuple[ProxyProcess, ...]) -> subprocess.CompletedProcess[str]:
    admin = [part for proxy in asked for part in ("--admin", api_address(proxy))]
    admin += ["--config", str(asked[0].config_path)]
    return subprocess.run(
        [sys.executable, "-m", "proxy", *arguments, *admin, "--json"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


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
    wait_for(lambda: count(installation, waiting) == 40, WITHIN_S, "what waits")
    written, unread = _written_and_left(installation, late, both)
    assert count(installation, late) <= written - unread
    assert command("resume", "--ingest", asked=(second,))["in_force"]
    wait_for(lambda: count(installation, late) == written, WITHIN_S, "what was written meanwhile")
    assert len(installation.judge().deliveries) == 40 + written


def _written_and_left(
    installation: Installation, target: str, both: tuple[ProxyProcess, ProxyProcess]
) -> tuple[int, int]:
    """Write until ten records are unread. Return the numbers of written and unread records.

    A takeover reads existing records to their end, and the two proxies may take over once more.
    """
    for rounds in range(2, ROUNDS):
        installation.send(requests(target, 10))
        with suppress(AssertionError):
            wait_for(lambda: _unread(both) >= 10, NOTICED_WITHIN_S, "what is unread")
            return 10 * rounds, _unread(both)
    raise AssertionError(f"of {10 * rounds} never ten were left unread")


def _unread(both: tuple[ProxyProcess, ProxyProcess]) -> int:
    return int(command("pauses", asked=both)["ingest"]["unread"])


def test_all_targets_are_paused_on_all_instances_and_what_waits_is_seen_in_each(
    installation: Installation,
) -> None:
    """One instance sets a pause of all targets. The pause survives a kill of the other. After the
    pause the records of a partition are delivered in due order."""
    target, other = installation.target("orders"), installation.target("bills")
    both = two_proxies(installation)
    first, second = both
    assert command("pause", "*", asked=(first,))["in_force"]
    for delay, records in ((b"1h", 10), (b"3h", 4)):
        installation.send(requests(target, records, ("timer-delay", delay)))
    installation.send(
        record
        for delay in (b"9s", b"6s", b"3s")
        for record in requests(other, 4, ("timer-delay", delay), ("timer-partition", b"0"))
    )
    second.kill()
    second.start_ready()
    wait_for(lambda: _waiting_for(other, "paused", both) == 12, WITHIN_S, "all paused")
    wait_for(lambda: _waiting_for(target, "scheduled", both) == 14, WITHIN_S, "both to answer")
    wait_for(lambda: _half_is_seen_by(first, target), WITHIN_S, "one to see its half alone")
    assert count(installation, other) == 0
    assert command("resume", "*", asked=(second,))["in_force"]
    wait_for(lambda: count(installation, other) == 12, WITHIN_S, "what was held back")
    assert count(installation, target) == 0
    by_partition: dict[bytes, list[int]] = {}
    for record in read_to_end(installation.bootstrap, other):
        ingress_partition = (record.header("timer-origin") or b"").rsplit(b"/", 1)[0]
        by_partition.setdefault(ingress_partition, []).append(int(record.header("timer-due") or 0))
    assert list(by_partition.values()) == [sorted(dues) for dues in by_partition.values()]
    assert len(by_partition) == 2
    in_two_hours = str(int(time.time() + 7_200) * 1000)
    command("purge", target, "--to", in_two_hours, "--yes", asked=(first,))
    wait_for(lambda: _waiting_for(target, "scheduled", both) == 4, WITHIN_S, "what is due later")
    command("purge", target, "--yes", asked=(first,))
    wait_for(lambda: _waiting_for(target, "scheduled", both) == 0, WITHIN_S, "nothing")
    assert installation.judge().counts["cancelled"] == 14


def _half_is_seen_by(proxy: ProxyProcess, target: str) -> bool:
    """Return whether an instance shows its own 7 records, and names the other instance."""
    done = _run("pending", "list", "--target", target, asked=(proxy,))
    return len(json.loads(done.stdout)["records"]) == 7 and "two did not answer" in done.stderr


def _waiting_for(target: str, why: str, asked: tuple[ProxyProcess, ...]) -> int | None:
    """Return the number of records. None: some partitions recover or move."""
    done = _run("pending", "list", "--target", target, asked=asked)
    if "partitions recover or move" in done.stderr:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = [str(record["why"]) for record in json.loads(done.stdout)["records"]]
    return reasons.count(why)


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


def test_a_cap_on_each_worker_counts_for_all_instances_and_outlives_a_restart(
    installation: Installation,
) -> None:
    target = installation.target("orders")
    both = two_proxies(installation)
    assert command("limits", "set", "--worker", "--per-second", "4", asked=both)["in_force"]
    first, _ = both
    first.kill()
    first.start_ready()
    limits = command("limits", asked=both)
    assert (limits["max_per_second"], limits["max_per_second_source"]) == (4, "run-time")
    installation.send(requests(target, 40))
    wait_for(lambda: count(installation, target) == 40, WITHIN_S, "what is capped")
    stamps = [record.timestamp_ms for record in read_to_end(installation.bootstrap, target)]
    assert max(stamps) - min(stamps) >= 3_500, "20 records for each of two workers"
    done = command("limits", "clear", "--worker", asked=both)
    assert (done["max_per_second"], done["in_force"]) == (None, True)
    installation.send(requests(target, 2_000))
    wait_for(lambda: count(installation, target) == 2_040, WITHIN_S, "what is capped no more")
    stamps = sorted(one.timestamp_ms for one in read_to_end(installation.bootstrap, target))
    assert stamps[-1] - stamps[40] < 125_000, "with the cap it would take twice as long"
    installation.judge()
