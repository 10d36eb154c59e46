"""The page's files, and the events that keep it current."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from proxy.admin import server as server_module
from proxy.admin.events import MOST_STREAMS, Snapshots
from proxy.admin.pages import FOLDER, page_address, page_file
from proxy.admin.queries import NoAnswer
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.refused_targets import RefusedTarget
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

LIMIT_S = 60.0
STREAM = b"GET /api/v1/events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def made() -> MadeUpApi:
    return MadeUpApi(AdminSettings(port=0))


@pytest.fixture
def port(made: MadeUpApi) -> Iterator[int]:
    with closing(AdminServer(made.site)) as running:
        yield running.port


def stream(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    connection.sendall(STREAM)
    return connection


def read_event(connection: socket.socket) -> Any:
    received = b""
    while b"data: " not in received or not received.endswith(b"\n\n"):
        part = connection.recv(65_536)
        assert part, "the stream has ended"
        received += part
    return json.loads(received.split(b"data: ")[-1])


def test_every_file_of_the_page_is_served_under_a_strict_policy(made: MadeUpApi) -> None:
    for file in FOLDER.iterdir():
        code, headers, body = made.reply(f"/page/{file.name}")
        assert (code, page_file(f"/page/{file.name}")) == (200, (headers["Content-Type"], body))
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:9464/"),
        ("0.0.0.0", "http://localhost:9464/"),  # noqa: S104
        ("::1", "http://[::1]:9464/"),
        ("proxy.example", "http://proxy.example:9464/"),
    ],
)
def test_the_address_of_the_page_is_one_that_a_browser_opens(host: str, address: str) -> None:
    assert page_address(host, 9464) == address


def test_no_file_of_the_page_asks_another_host_for_anything() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text


def test_a_stream_over_the_socket_brings_snapshots_and_ends_with_the_port() -> None:
    made = MadeUpApi(AdminSettings(port=0))
    server = AdminServer(made.site)
    with closing(socket.create_connection(("127.0.0.1", server.port), LIMIT_S)) as connection:
        connection.sendall(STREAM)
        assert read_event(connection)["pending"] == 9
        server.close()
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize(
    ("settings", "headers", "code"),
    [
        (AdminSettings(port=0, token="a-token-nobody-guesses"), {}, 401),
        (AdminSettings(port=0, host="0.0.0.0"), {}, 403),  # noqa: S104
        (AdminSettings(port=0), {"Host": "rebound.example"}, 403),
        (
            AdminSettings(port=0, host="0.0.0.0", token="a-token-nobody-guesses"),  # noqa: S104
            {"Authorization": "Bearer a-token-nobody-guesses"},
            200,
        ),
    ],
)
def test_events_need_what_every_call_needs(
    settings: AdminSettings, headers: dict[str, str], code: int
) -> None:
    made = MadeUpApi(settings)
    with closing(AdminServer(made.site)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
        with closing(connection):
            connection.request("GET", "/api/v1/events", headers=headers)
            assert connection.getresponse().status == code


def test_more_streams_than_the_bound_are_refused_until_one_ends(made: MadeUpApi, port: int) -> None:
    with ExitStack() as kept:
        streams = [kept.enter_context(stream(port)) for _ in range(MOST_STREAMS)]
        for one in streams:
            read_event(one)
        with stream(port) as refused:
            assert b"open already" in b"".join(iter(lambda: refused.recv(65_536), b""))
        streams[0].close()
        wait_for(lambda: made.site.events.count < MOST_STREAMS, LIMIT_S, "a stream to end")
        read_event(kept.enter_context(stream(port)))


def test_pages_that_are_open_share_one_snapshot_a_second(made: MadeUpApi, port: int) -> None:
    with stream(port) as one, stream(port) as other:
        assert read_event(one)["now"] == read_event(other)["now"]


def test_a_reader_that_takes_nothing_is_dropped(
    made: MadeUpApi, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REPLY_WITHIN_S", 0.1)
    made.site.events.gather = lambda _own, _asker: {"much": "x" * 20_000_000}
    with stream(port):
        wait_for(lambda: made.site.events.count == 1, LIMIT_S, "the stream to begin")
        wait_for(lambda: made.site.events.count == 0, LIMIT_S, "the stream to end")


def test_head_of_the_events_is_no_stream(made: MadeUpApi, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        connection.sendall(STREAM.replace(b"GET", b"HEAD"))
        head = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/event-stream" in head
    assert made.site.events.count == 0


def test_workers_are_asked_once_in_five_seconds_however_many_snapshots_are_made() -> None:
    made = MadeUpApi()
    snapshots = Snapshots(CollectorRegistry(), made.statuses, made.workers)
    for now_ms in range(10_000, 14_000, 100):
        by_time = snapshots.make(now_ms)["by_time"]
    pieces = len(made.workers.asked)
    assert pieces == 3
    assert by_time["overdue"] == 3
    assert [len(by_time[scale]) for scale in ("hour", "day", "month")] == [12, 24, 30]
    snapshots.make(15_000)
    assert len(made.workers.asked) == 2 * pieces


def test_a_snapshot_says_which_targets_a_pause_holds_and_what_stands_in_the_picture_besides() -> (
    None
):
    made = MadeUpApi()
    made.broker.paused = {"bil*", "another"}
    snapshot = Snapshots(CollectorRegistry(), made.statuses, made.workers).make(10_000)
    assert snapshot["held_targets"] == ["bills"]
    by_time = snapshot["by_time"]
    assert (by_time["paused"], by_time["cancelled"]) == (5, 3)


def test_a_worker_that_does_not_answer_leaves_the_rest_of_the_snapshot() -> None:
    made = MadeUpApi()
    made.workers.refusal = NoAnswer()
    snapshot = Snapshots(CollectorRegistry(), made.statuses, made.workers).make(10_000)
    assert snapshot["by_time"] is None
    assert snapshot["pending"] == 9


def test_a_snapshot_says_what_was_delivered_and_how_late() -> None:
    made, metrics = MadeUpApi(), Metrics()
    metrics.targets.delivered(["orders", "orders"], np.array([1_000, 3_000]))
    metrics.count_dead_letters({"no-topic": 2})
    snapshot = Snapshots(metrics.registry, made.statuses, made.workers).make(10_000)
    assert snapshot["delivered"]["orders"] == 2
    assert snapshot["lateness_sum_s"]["orders"] == 4
    assert snapshot["dead_letters"] == {"no-topic": 2}
    json.dumps(snapshot, allow_nan=False)


def test_a_snapshot_says_why_a_target_does_not_take_its_records_over_all_workers() -> None:
    made = MadeUpApi()
    why = "not-authorised", "no right to write"
    each = [
        replace(status, refused=(RefusedTarget("bills", *why, 2, 9_000 - number),))
        for number, status in enumerate([*made.statuses(), *made.statuses()][:2])
    ]
    snapshot = Snapshots(CollectorRegistry(), lambda: each, made.workers).make(10_000)
    assert snapshot["refused"] == {
        "bills": {"why": ": ".join(why), "records": 4, "oldest_due": 8_999}
    }
