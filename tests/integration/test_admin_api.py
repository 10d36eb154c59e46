"""An operator pauses, caps, looks up and cancels on a real proxy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from proxy.telemetry.metrics import STEPS
from storage.options import StoreKind
from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.raw_produce import NOT_UTF_8, produce_raw
from tests.support.records import Incoming, Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 180
PER_SECOND = 100
QUESTIONS_AT_ONCE = 20


def request(
    target: str, delay: str, ident: str | None = None, key: bytes | None = None
) -> Outgoing:
    headers = [("timer-topic", target.encode()), ("timer-delay", delay.encode())]
    if ident is not None:
        headers.append(("timer-id", ident.encode()))
        key = ident.encode()
    return Outgoing(key, b"value", headers)


def delivered(installation: Installation, target: str) -> list[Incoming]:
    return read_to_end(installation.bootstrap, target)


def run_example(proxy: ProxyProcess, name: str, *arguments: str) -> str:
    done = subprocess.run(
        ["/bin/sh", str(EXAMPLES / name), *arguments],
        env={**os.environ, "ADMIN": api_address(proxy)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_paused_target_holds_up_no_other_and_gets_all_once_resumed(
    installation: Installation,
) -> None:
    held, free = installation.target("orders-eu"), installation.target("bills")
    proxy = installation.proxy()
    proxy.start_ready()
    pattern = f"{installation.name}.orders-*"
    assert call(proxy, "PUT", f"/pauses/{pattern}") == (
        200,
        {"pattern": pattern, "paused": True, "per_second": None, "in_force": True},
    )
    installation.send([request(held, "500ms") for _ in range(40)])
    installation.send([request(free, "500ms") for _ in range(40)])
    installation.await_ends(80)
    assert (len(delivered(installation, free)), delivered(installation, held)) == (40, [])
    assert proxy.stop() == 0
    proxy.start_ready()
    assert call(proxy, "GET", "/pauses") == (200, {"paused": [pattern], "release_rates": {}})
    assert "resumed" in run_example(proxy, "admin-pause.sh", "resume", pattern)
    assert call(proxy, "GET", "/pauses") == (200, {"paused": [], "release_rates": {}})
    wait_for(lambda: len(delivered(installation, held)) == 40, WITHIN_S, "what was held back")
    ends = installation.judge()
    assert len(ends.deliveries) == 80


def test_after_a_downtime_records_come_no_faster_than_the_cap(installation: Installation) -> None:
    target = installation.target()
    installation.send([request(target, "1ms", key=b"%d" % n) for n in range(4 * PER_SECOND)])
    proxy = installation.proxy(release={"max_per_second": PER_SECOND})
    proxy.start_ready()
    wait_for(
        lambda: len(delivered(installation, target)) == 4 * PER_SECOND, WITHIN_S, "all records"
    )
    stamps = sorted(record.timestamp_ms for record in delivered(installation, target))
    for start_ms in stamps:
        within = sum(start_ms <= stamp < start_ms + 1_000 for stamp in stamps)
        assert within <= 1.5 * PER_SECOND, f"{within} within a second"
    assert stamps[-1] - stamps[0] >= 2_500
    installation.judge()


def test_a_targets_rate_sends_what_exceeds_it_to_the_end_of_the_line(
    installation: Installation,
) -> None:
    slow, fast = installation.target("slow"), installation.target("fast")
    proxy = installation.proxy(release={"per_target": {slow: 20}})
    proxy.start_ready()
    installation.send([request(slow, "1s") for _ in range(60)])
    installation.send([request(fast, "1s") for _ in range(60)])
    wait_for(lambda: len(delivered(installation, fast)) == 60, WITHIN_S, "the fast target")
    wait_for(lambda: len(delivered(installation, slow)) == 60, WITHIN_S, "the slow target")
    slow_ms = [record.timestamp_ms for record in delivered(installation, slow)]
    fast_ms = [record.timestamp_ms for record in delivered(installation, fast)]
    assert max(slow_ms) - min(slow_ms) >= 2_000
    assert max(fast_ms) < max(slow_ms)
    installation.judge()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_operator_finds_counts_and_cancels_what_waits(
    installation: Installation, workers: int
) -> None:
    target = installation.target()
    proxy = installation.proxy(workers=workers)
    proxy.start_ready()
    installation.send([request(target, "1h", f"id-{number}") for number in range(8)])
    installation.send(
        [
            Outgoing(
                b"half",
                b"",
                [
                    ("timer-topic", target.encode()),
                    ("timer-id", b"half"),
                    ("timer-transaction", b"prepare"),
                ],
            )
        ]
    )
    installation.await_ingested()
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 8, WITHIN_S, "8 pending")
    assert call(proxy, "GET", "/pending")[1]["by_target"] == {target: 8}
    wait_for(lambda: call(proxy, "GET", "/half-messages")[1]["undecided"] == 1, WITHIN_S, "a half")
    buckets = call(proxy, "GET", "/pending/by-time?within=1m,2h")[1]["buckets"]
    assert [bucket["pending"] for bucket in buckets] == [0, 8, 0]
    (record,) = call(proxy, "GET", "/records?id=id-3")[1]["records"]
    assert (record["state"], record["target"], record["id"]) == ("pending", target, "id-3")
    assert call(proxy, "GET", f"/records/{record['origin']}") == (200, record)
    said = json.loads(run_example(proxy, "admin-cancel.sh", "id-3").splitlines()[-1])
    assert said["outcome"] == "applied"
    assert call(proxy, "GET", f"/records/{record['origin']}")[1]["state"] == "ended"
    assert call(proxy, "GET", "/records?id=id-3")[0] == 404
    assert call(proxy, "POST", "/cancellations?wait=30s", {"id": "id-3"})[1]["outcome"] == "missed"
    assert call(proxy, "POST", "/cancellations", {"id": "x", "partition": 99})[0] == 404
    assert call(proxy, "POST", "/cancellations", {"id": "id-4"})[0] == 202
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 6, WITHIN_S, "6 pending")
    assert f"{target}" in run_example(proxy, "admin-pending.sh")
    ends_partition = int(record["origin"].split("/")[1])
    assert call(proxy, "GET", f"/records/{installation.ingress}/{ends_partition}/999")[0] == 404


@pytest.mark.parametrize(
    ("store", "bodies", "goes_on"),
    [
        ("wheel", "local", "from its disk"),
        ("wheel", "kafka", "without its disk"),
        ("rocksdb", "local", "as another instance"),
        ("rocksdb", "kafka", "from its disk"),
        ("wheel", "local", "without its disk"),
    ],
)
def test_a_purge_ends_what_waits_through_a_kill_and_leaves_the_rest(
    installation: Installation, store: StoreKind, bodies: Literal["local", "kafka"], goes_on: str
) -> None:
    purged, kept = installation.target("orders-eu"), installation.target("bills")
    proxy = installation.proxy(store=store, bodies=bodies)
    proxy.start_ready()
    installation.send([request(purged, "10m", f"id-{number}") for number in range(3_000)])
    installation.send([request(purged, "1h") for _ in range(500)])
    installation.send([request(kept, "20s") for _ in range(200)])
    installation.await_ingested()
    asked = {"targets": "*orders-eu*", "dry_run": True}
    wait_for(
        lambda: call(proxy, "POST", "/purges", asked)[1]["records"] == 3_500, WITHIN_S, "all wait"
    )
    code, reply = call(proxy, "POST", "/purges", {**asked, "dry_run": False})
    assert (code, reply["applied"]) == (200, True)
    proxy.kill()
    installation.send([request(purged, "1s") for _ in range(10)])
    if goes_on == "without its disk":
        shutil.rmtree(proxy.data_dir)
    if goes_on == "as another instance":
        proxy = installation.proxy("two", store=store, bodies=bodies)
    proxy.start_ready()
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 0, WITHIN_S, "no record left")
    counts = installation.judge().counts
    assert (counts["cancelled"], counts["delivered"]) == (3_500, 210)


@pytest.mark.parametrize("store", ["wheel", "rocksdb"])
@pytest.mark.parametrize("bodies", ["local", "kafka"])
def test_what_waits_is_listed_page_by_page_and_shown(
    installation: Installation, store: str, bodies: str
) -> None:
    target, other = installation.target("orders"), installation.target("bills")
    proxy = installation.proxy(store=store, bodies=bodies)
    proxy.start_ready()
    installation.send([request(target, f"{60 + number}m", f"id-{number}") for number in range(40)])
    installation.send([request(other, "1h", key=b"%d" % number) for number in range(10)])
    installation.await_ingested()
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 50, WITHIN_S, "50 pending")
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        after = f"&cursor={cursor}" if cursor else ""
        code, said = call(proxy, "GET", f"/pending/records?target={target}&limit=7{after}")
        assert code == 200
        found, cursor = [*found, *said["records"]], said["cursor"]
    assert len({record["origin"] for record in found}) == len(found) == 40
    assert [record["fires"] for record in found] == sorted(record["fires"] for record in found)
    words = {"unread"} if bodies == "kafka" else {"scheduled"}
    assert {record["why"] for record in found} == words
    if bodies == "local":
        assert {record["id"] for record in found} == {f"id-{number}" for number in range(40)}
    dues = [record["due"] for record in found]
    between = call(proxy, "GET", f"/pending/records?due_from={dues[10]}&due_to={dues[19]}")[1]
    assert {r["origin"] for r in between["records"] if r["target"] == target} == {
        record["origin"] for record in found if dues[10] <= record["due"] <= dues[19]
    }
    by_time = call(proxy, "GET", f"/pending/by-time?target={target}&within=1h,90m")[1]
    counts = [bucket["pending"] for bucket in by_time["buckets"]]
    assert (sum(counts), by_time["counted_all"]) == (40, True)
    assert counts[0] == sum(due <= by_time["buckets"][0]["until"] for due in dues)
    begun_so = call(proxy, "GET", "/pending/records?id_prefix=id-1")[1]["records"]
    assert len(begun_so) == (0 if bodies == "kafka" else 11)
    half = [
        ("timer-topic", target.encode()),
        ("timer-id", b"half"),
        ("timer-transaction", b"prepare"),
    ]
    installation.send([Outgoing(b"half", b"value", half)])
    listed = f"/pending/records?target={target}"
    wait_for(
        lambda: "undecided" in {one["why"] for one in call(proxy, "GET", listed)[1]["records"]},
        WITHIN_S,
        "the half message",
    )
    assert call(proxy, "GET", "/pending/records?cursor=1")[0] == 400
    shown = call(proxy, "GET", f"/records/{found[0]['origin']}?body=true")[1]
    assert (shown["id"], shown["value"]["text"]) == ("id-0", "value")
    assert {"name": "timer-delay", "value": {"text": "60m", "bytes": 3, "cut": False}} in shown[
        "headers"
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_record_whose_headers_nobody_can_read_has_ended(
    installation: Installation, workers: int
) -> None:
    proxy = installation.proxy(workers=workers)
    proxy.start_ready()
    produce_raw(installation.bootstrap, installation.ingress, b"unreadable", [(NOT_UTF_8, b"1")])
    installation.await_ends(1)
    origin = f"{installation.ingress}/0/0"
    wait_for(lambda: call(proxy, "GET", f"/records/{origin}")[0] == 200, WITHIN_S, "its answer")
    assert call(proxy, "GET", f"/records/{origin}")[1]["state"] == "ended"


def loggers(log: str, event: str) -> set[int | None]:
    lines = map(json.loads, log.rpartition("\n")[0].splitlines())
    return {line.get("worker") for line in lines if line["event"] == event}


def step_counts(proxy: ProxyProcess) -> list[float]:
    lines = proxy.get("/metrics")[1].splitlines()
    counts = [line for line in lines if line.startswith("delay_proxy_loop_step_seconds_count{")]
    return [float(line.rpartition(" ")[2]) for line in counts]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_level_changes_in_every_worker_and_each_times_its_steps(
    installation: Installation, workers: int
) -> None:
    target = installation.target()
    proxy = installation.proxy(workers=workers)
    proxy.start_ready()
    assert call(proxy, "PUT", "/log-level", {"level": "error"}) == (200, {"level": "error"})
    before = len(proxy.log)
    installation.send([Outgoing(b"%d" % n, b"", [("timer-delay", b"1s")]) for n in range(20)])
    installation.await_ends(20)
    assert '"dead letters"' not in proxy.log[before:]
    assert call(proxy, "PUT", "/log-level", {"level": "info"})[0] == 200
    installation.send([Outgoing(b"%d" % n, b"", [("timer-delay", b"1s")]) for n in range(20)])
    wait_for(
        lambda: len(loggers(proxy.log[before:], "dead letters")) == workers, WITHIN_S, "log lines"
    )
    assert target not in proxy.log[before:]
    assert call(proxy, "GET", "/pending/records")[0] == 200
    wait_for(lambda: all(step_counts(proxy)), WITHIN_S, "each step to be timed")
    assert len(step_counts(proxy)) == workers * len(STEPS)


def test_the_loop_turns_on_while_it_is_asked_many_questions(installation: Installation) -> None:
    target = installation.target()
    proxy = installation.proxy()
    proxy.start_ready()
    installation.send([request(target, "3s", key=b"%d" % n) for n in range(200)])

    def have_arrived() -> bool:
        for _ in range(QUESTIONS_AT_ONCE):
            assert call(proxy, "GET", "/pending/by-time")[0] == 200
        return len(delivered(installation, target)) == 200

    wait_for(have_arrived, WITHIN_S, "all records, while it is asked and asked")
    installation.judge()
