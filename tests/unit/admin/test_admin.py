"""Probes and /metrics: correct answers from snapshots, over a real socket if that matters."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, Gauge

from proxy.admin.pages import HEARTBEAT_LIMIT_S, health, readiness
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from proxy.errors import PortTaken, SettingsError
from proxy.telemetry.status import ShardState, ShardStatus, Status
from tests.support.simulation.admin_api import MadeUpApi

NOW = 1_000.0
SECRET = "a-secret-of-sixteen"


def a_shard(state: ShardState, partition: int = 0) -> ShardStatus:
    return ShardStatus("timer.ingress", partition, state, 0, 0, 0, 0, 5)


def a_status(*states: ShardState, silent_s: float = 0.0, assigned: bool = True) -> Status:
    shards = tuple(a_shard(state, number) for number, state in enumerate(states))
    return Status(shards, NOW - silent_s, assigned)


def ask(path: str, statuses: Sequence[Status]) -> tuple[int, dict[str, object]]:
    code, said = health(statuses, NOW) if path == "/healthz" else readiness(statuses)
    return code, json.loads(json.dumps(said))


def test_healthy_while_every_loop_turns() -> None:
    assert ask("/healthz", [a_status(), a_status(silent_s=1)]) == (200, {"healthy": True})


def test_unhealthy_once_one_loop_has_stood_still_for_half_a_minute() -> None:
    code, said = ask("/healthz", [a_status(), a_status(silent_s=HEARTBEAT_LIMIT_S)])
    assert code == 503
    assert said["reason"] == "a worker's loop has not turned for 30 s"


def test_unhealthy_before_the_first_worker() -> None:
    assert ask("/healthz", [])[0] == 503


def test_ready_once_every_assigned_shard_has_caught_up() -> None:
    assert ask("/readyz", [a_status("running", "held")]) == (
        200,
        {"ready": True, "shards": 2, "ingest_paused": False, "disk_full": False},
    )


def test_a_full_disk_is_named() -> None:
    full = replace(a_status("running"), is_disk_full=True)
    assert ask("/readyz", [a_status("running"), full]) == (
        200,
        {"ready": True, "shards": 2, "ingest_paused": False, "disk_full": True},
    )
    code, said = ask("/readyz", [replace(full, assigned=False, shards=())])
    assert (code, said["reason"]) == (
        503,
        "the disk is full, so this instance serves no partitions: see the runbook",
    )


def test_not_ready_while_a_partition_cannot_be_read_on() -> None:
    stuck = replace(a_shard("unreadable"), unreadable_at=5, unreadable_why="it does not unpack")
    code, said = ask("/readyz", [replace(a_status(), shards=(stuck, a_shard("running", 1)))])
    assert code == 503
    assert "cannot be read on" in str(said["reason"])
    (waiting,) = cast(list[dict[str, object]], said["not_ready"])
    assert (waiting["unreadable_at"], waiting["unreadable_why"]) == (5, "it does not unpack")


def test_a_worker_that_was_assigned_nothing_is_ready() -> None:
    assert ask("/readyz", [a_status()])[0] == 200


def test_not_ready_names_the_shards_that_have_not_caught_up() -> None:
    code, said = ask("/readyz", [a_status("running", "catching-up"), a_status("recovering")])
    assert code == 503
    waiting = said["not_ready"]
    assert isinstance(waiting, list)
    assert [(one["partition"], one["state"], one["behind"]) for one in waiting] == [
        (1, "catching-up", 5),
        (0, "recovering", 5),
    ]


@pytest.mark.parametrize("statuses", [[], [Status()], [a_status(), a_status(assigned=False)]])
def test_not_ready_before_the_group_has_answered_every_worker(statuses: list[Status]) -> None:
    code, said = ask("/readyz", statuses)
    assert code == 503
    assert "not assigned" in str(said["reason"])


@pytest.mark.parametrize(
    ("path", "authorization", "code"),
    [
        ("/metrics", "", 401),
        ("/", "Bearer wrong", 200),
        ("/page/style.css", "", 200),
        ("/page/../server.py", "", 401),
        ("/page/__init__.py", "", 401),
        ("/metrics", "Bearer " + SECRET, 200),
        ("/metrics", "Bearer sécret", 401),
        ("/healthz", "", 200),
        ("/readyz", "", 200),
    ],
)
def test_with_a_token_only_probes_and_the_files_of_the_page_are_open(
    path: str, authorization: str, code: int
) -> None:
    made = MadeUpApi(AdminSettings(token=SECRET))
    made.site.read_statuses = lambda: [a_status(silent_s=NOW - time.monotonic())]
    assert made.reply(path, headers={"authorization": authorization})[0] == code


@pytest.fixture
def server() -> Iterator[AdminServer]:
    registry = CollectorRegistry()
    Gauge("a_gauge", "", registry=registry).set(7)
    made = MadeUpApi(AdminSettings(port=0), registry=registry)
    with closing(AdminServer(made.site)) as running:
        yield running


def fetch(server: AdminServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_served_over_http(server: AdminServer) -> None:
    code, text = fetch(server, "/metrics?x=1")
    assert code == 200
    assert "a_gauge 7.0" in text


def test_an_unknown_page_names_those_there_are(server: AdminServer) -> None:
    code, text = fetch(server, "/nothing")
    assert code == 404
    assert "/readyz" in text


def test_a_client_that_sends_junk_or_nothing_harms_nobody(server: AdminServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as junk:
        junk.sendall(b"\x00\xff\r\n\r\n")
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    assert fetch(server, "/")[0] == 200
    for one in silent:
        one.close()


def test_a_port_in_use_is_a_sentence(server: AdminServer) -> None:
    with pytest.raises(PortTaken, match=f"Port {server.port} on 127.0.0.1 is already in use"):
        AdminServer(MadeUpApi(AdminSettings(port=server.port)).site)


def test_a_host_of_another_machine_is_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on 203\.0\.113\.7:"):
        AdminServer(MadeUpApi(AdminSettings(host="203.0.113.7", port=0)).site)
