"""Slow and incomplete requests delay no other request, and end."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from proxy.admin import server as server_module
from proxy.admin.app import MOST_BODY_BYTES
from proxy.admin.server import MOST_HEAD_BYTES, AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

LIMIT_S = 180.0
SLOW = 40
BEGUN = b"GET /metrics HTTP/1.1\r\nX-Slow: "
PUT = b"PUT /api/v1/log-level HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CALL = b"GET /api/v1/pending HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def made() -> MadeUpApi:
    return MadeUpApi(AdminSettings(port=0, token="a-token-nobody-guesses"))


@pytest.fixture
def server(made: MadeUpApi) -> Iterator[AdminServer]:
    with closing(AdminServer(made.site)) as running:
        yield running


@pytest.fixture
def client(server: AdminServer) -> Iterator[Callable[[bytes], socket.socket]]:
    with ExitStack() as clients:

        def connect(sent: bytes) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
            clients.enter_context(made)
            made.sendall(sent)
            return made

        yield connect


Client = Callable[[bytes], socket.socket]


def answer(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def code_of(connection: socket.socket) -> int:
    return int(answer(connection).split()[1])


SHOWN = b"Authorization: Bearer a-token-nobody-guesses\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [CALL + SHOWN + b"\r\n"],
        [CALL[:7], CALL[7:], SHOWN, b"\r", b"\n"],
        [CALL.replace(b"\r", b""), SHOWN.replace(b"\r", b""), b"\n"],
        [PUT + SHOWN + b"Content-Length: 17\r\n\r\n{", b'"level": "info', b'"}'],
    ],
)
def test_request_is_answered_once_it_is_whole_however_it_comes(
    client: Client, parts: list[bytes]
) -> None:
    connection = client(b"")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for part in parts:
        connection.sendall(part)
    assert code_of(connection) == 200


@pytest.mark.parametrize("sent", [b"", BEGUN, PUT + b"Content-Length: 99\r\n\r\n{"])
def test_request_that_does_not_come_in_time_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server_module, "REQUEST_WITHIN_S", 0.3)
    said = answer(client(sent))
    assert said.split()[1] == b"408"
    assert b'"error": "too-slow"' in said


def test_time_of_a_request_is_not_begun_anew_by_each_byte(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REQUEST_WITHIN_S", 0.5)
    connection, is_over = client(BEGUN), threading.Event()

    def trickle() -> None:
        while not is_over.wait(0.05):
            connection.sendall(b"x")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    head = connection.recv(65_536)
    is_over.set()
    assert head.split()[1] == b"408"


def test_reply_that_is_not_taken_in_time_is_dropped(
    made: MadeUpApi, server: AdminServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REPLY_WITHIN_S", 0.3)
    monkeypatch.setattr("proxy.admin.app.generate_latest", lambda _: b"x" * 20_000_000)
    client(b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + SHOWN + b"\r\n")
    connections = server._server.server_state.connections
    wait_for(lambda: bool(connections), LIMIT_S, "the connection to be made")
    wait_for(lambda: not connections, LIMIT_S, "the connection to be cut")


def test_body_that_is_announced_too_large_is_refused_before_it_comes(client: Client) -> None:
    sent = PUT + SHOWN + b"Content-Length: %d\r\n\r\nx" % (MOST_BODY_BYTES + 1)
    connection = client(sent)
    assert connection.recv(65_536).split()[1] == b"413"


def test_head_that_is_too_long_is_refused(client: Client) -> None:
    assert code_of(client(BEGUN + b"x" * (MOST_HEAD_BYTES + 1))) == 431


def test_client_that_leaves_without_a_word_is_forgotten(
    server: AdminServer, client: Client
) -> None:
    client(b"").close()
    connections = server._server.server_state.connections
    wait_for(lambda: not connections, LIMIT_S, "the connection to be forgotten")


def test_more_connections_than_there_may_be_close_the_oldest(
    server: AdminServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS_AT_ONCE", 3)
    connections = server._server.server_state.connections
    made = []
    for count in range(1, 4):
        made.append(client(BEGUN))
        wait_for(lambda count=count: len(connections) == count, LIMIT_S, "it to be made")  # type: ignore[misc]
    assert code_of(client(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")) == 200
    assert made[0].recv(1) == b""
    made[1].sendall(b"x\r\nHost: a\r\n\r\n")
    assert code_of(made[1]) == 401


def test_slow_clients_hold_up_neither_probes_nor_pages(client: Client) -> None:
    for _ in range(SLOW):
        client(BEGUN)
        client(PUT + SHOWN + b"Content-Length: 99\r\n\r\n{")
    for path in (b"/readyz", b"/healthz", b"/metrics", b"/api/v1/pending"):
        sent = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + SHOWN + b"\r\n"
        assert code_of(client(sent)) in {200, 503}


def transports() -> list[asyncio.Transport]:
    return [one for one in gc.get_objects() if isinstance(one, asyncio.Transport)]


def test_connections_leave_nothing_that_only_the_garbage_collector_would_free(
    server: AdminServer, client: Client
) -> None:
    """The collector is off in the worker's process."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            code_of(client(CALL + SHOWN + b"\r\n"))
        connections = server._server.server_state.connections
        wait_for(lambda: not connections, LIMIT_S, "the connections to end")
        wait_for(lambda: not transports(), LIMIT_S, "their transports to be freed")
    finally:
        if was_enabled:
            gc.enable()


def test_calls_that_wait_do_not_keep_the_port_from_closing(made: MadeUpApi) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def ask(_: object) -> list[object]:
        begun.set()
        go_on.wait(LIMIT_S)
        return []

    made.workers.ask = ask  # type: ignore[method-assign, assignment]
    server = AdminServer(made.site)
    with socket.create_connection(("127.0.0.1", server.port), LIMIT_S) as connection:
        connection.sendall(CALL.replace(b"pending", b"pending/by-time") + SHOWN + b"\r\n")
        assert begun.wait(LIMIT_S)
        server.close()
        assert not go_on.is_set()
    go_on.set()
