"""The soak's relays pass, delay or cut connections on command."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tools.soak.relay import HOST, Relays

NODE = 1
PATIENCE_S = 20


@pytest.fixture
def relays() -> Iterator[Relays]:
    server = socket.create_server((HOST, 0))
    threading.Thread(target=_echo_all, args=(server,), daemon=True).start()
    with server, Relays({NODE: server.getsockname()[1]}) as made:
        yield made


def _echo_all(server: socket.socket) -> None:
    while True:
        try:
            connection, _address = server.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1024):
            connection.sendall(data)


def _connected(relays: Relays) -> socket.socket:
    return socket.create_connection((HOST, relays.port(NODE)), PATIENCE_S)


def _answer(connection: socket.socket, timeout_s: float = PATIENCE_S) -> bytes | None:
    """Return the answer, empty if the connection is closed, None on a time-out."""
    connection.settimeout(timeout_s)
    try:
        return connection.recv(1024)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""


def test_bytes_pass_both_ways(relays: Relays) -> None:
    with _connected(relays) as client:
        client.sendall(b"hello")
        assert _answer(client) == b"hello"


def test_connection_that_is_cut_is_closed_and_a_new_one_is_taken(relays: Relays) -> None:
    with _connected(relays) as client:
        client.sendall(b"1")
        assert _answer(client) == b"1"
        relays.cut(NODE)
        assert _answer(client) == b""
    with _connected(relays) as client:
        client.sendall(b"2")
        assert _answer(client) == b"2"


def test_new_connection_is_refused_until_healed(relays: Relays) -> None:
    relays.refuse(NODE)
    with _connected(relays) as client:
        assert _answer(client) == b""
    relays.heal(NODE)
    with _connected(relays) as client:
        client.sendall(b"3")
        assert _answer(client) == b"3"


@pytest.mark.parametrize("is_answered", [True, False])
def test_half_open_connection_says_nothing_and_is_cut_when_healed(
    relays: Relays, is_answered: bool
) -> None:
    with _connected(relays) as client:
        client.sendall(b"1")
        assert _answer(client) == b"1"
        relays.half_open(NODE, is_answered=is_answered)
        client.sendall(b"2")
        assert _answer(client, 0.3) is None
        relays.heal(NODE)
        while _answer(client):
            pass
    with _connected(relays) as client:
        client.sendall(b"4")
        assert _answer(client) == b"4"
