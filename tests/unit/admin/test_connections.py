"""Requests that arrive slowly, or never whole, hold up nobody and end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry

from proxy.admin.connections import CONNECTIONS_AT_ONCE, REQUEST_WITHIN_S, Arriving, Connections
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

LIMIT_S = 180.0
SLOW = 40
BEGUN = b"GET /metrics HTTP/1.1\r\nX-Slow: "


class Taken:
    """Connections that are turned by hand, with a clock of their own."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.given_up = 0
        self.now_s = 0.0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self.connections = Connections(listener, self._take, self._give_up, lambda: self.now_s)

    def client(self, sent: bytes = b"") -> socket.socket:
        """A client that has been accepted, and has sent this."""
        made = socket.create_connection(("127.0.0.1", self.port), LIMIT_S)
        before = len(self.connections._arriving)
        while len(self.connections._arriving) == before:
            self.connections.turn()
        made.sendall(sent)
        return made

    def turn_until_taken(self, count: int) -> None:
        while len(self.requests) < count:
            self.connections.turn()

    def _take(self, client: socket.socket, sent: bytes) -> None:
        self.requests.append(sent)
        client.close()

    def _give_up(self, client: socket.socket) -> None:
        self.given_up += 1
        client.close()


@pytest.fixture
def taken() -> Iterator[Taken]:
    made = Taken()
    with closing(made.connections):
        yield made


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"GET / HT", b"TP/1.1\r\n", b"\r", b"\n"],
        [b"PUT / HTTP/1.1\r\ncontent-length: 3\r\n\r\na", b"b", b"c"],
        [b"GET / HTTP/1.1\n\n"],
    ],
)
def test_request_is_taken_once_it_is_whole_however_it_comes(
    taken: Taken, parts: list[bytes]
) -> None:
    with taken.client() as client:
        for part in parts[:-1]:
            client.sendall(part)
            taken.connections.turn()
            assert taken.requests == []
        client.sendall(parts[-1])
        taken.turn_until_taken(1)
    assert taken.requests == [b"".join(parts)]


def test_head_that_comes_byte_by_byte_is_searched_once(taken: Taken) -> None:
    arriving = Arriving(socket.socket(), 0.0)
    sent = b"PUT / HTTP/1.1\r\ncontent-length: 2\r\nx: " + b"y" * 500 + b"\r\n\r\nab"
    with arriving.socket:
        whole = [arriving.take(sent[at : at + 1]) for at in range(len(sent))]
    assert whole == [False] * (len(sent) - 1) + [True]


def test_connection_closed_for_another_is_not_read_any_more(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.admin.connections.CONNECTIONS_AT_ONCE", 1)
    with taken.client() as oldest:
        newest = socket.create_connection(("127.0.0.1", taken.port), LIMIT_S)
        oldest.sendall(BEGUN)
        with newest:
            newest.sendall(b"GET / HTTP/1.1\r\n\r\n")
            taken.turn_until_taken(1)
    assert len(taken.requests) == 1


def test_request_that_announces_too_much_is_taken_as_it_is(taken: Taken) -> None:
    sent = b"PUT / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\nx"
    with taken.client(sent):
        taken.turn_until_taken(1)
    assert taken.requests == [sent]


def test_request_that_does_not_come_in_time_is_given_up(taken: Taken) -> None:
    with taken.client(BEGUN):
        taken.now_s = REQUEST_WITHIN_S - 0.1
        taken.connections.turn()
        assert taken.given_up == 0
        taken.now_s = REQUEST_WITHIN_S
        taken.connections.turn()
        assert taken.given_up == 1


def test_client_that_leaves_without_a_word_is_forgotten(taken: Taken) -> None:
    taken.client().close()
    while taken.connections._arriving:
        taken.connections.turn()
    assert (taken.requests, taken.given_up) == ([], 0)


def test_more_connections_than_there_may_be_close_the_oldest(taken: Taken) -> None:
    with ExitStack() as clients:
        made = [clients.enter_context(taken.client()) for _ in range(CONNECTIONS_AT_ONCE)]
        newest = clients.enter_context(socket.create_connection(("127.0.0.1", taken.port), LIMIT_S))
        newest.sendall(b"GET / HTTP/1.1\r\n\r\n")
        taken.turn_until_taken(1)
        assert made[0].recv(1) == b""
        assert len(taken.connections._arriving) == CONNECTIONS_AT_ONCE - 1


def test_slow_clients_hold_up_neither_probes_nor_pages() -> None:
    made = MadeUpApi(AdminSettings(port=0))
    server = AdminServer(made.settings, CollectorRegistry(), made.statuses, made.api)
    with closing(server), ExitStack() as clients:
        for _ in range(SLOW):
            slow = clients.enter_context(
                socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
            )
            slow.sendall(BEGUN)
        for path in (b"/readyz", b"/healthz", b"/metrics", b"/api/v1/pending"):
            with socket.create_connection(("127.0.0.1", server.port), LIMIT_S) as client:
                client.sendall(b"GET " + path + b" HTTP/1.0\r\n\r\n")
                assert client.recv(100).split()[1] in {b"200", b"503"}
