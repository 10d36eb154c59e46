"""A port that hands each connection on to another, as a Service or `kubectl port-forward` does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 65_536


@contextmanager
def tcp_relay(address: str) -> Iterator[int]:
    """The port, on 127.0.0.1. `address`: host:port of what is behind it."""
    host, _, port = address.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, (host, int(port))), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, behind: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            caller, _ = listener.accept()
            callee = socket.create_connection(behind)
            for one, other in ((caller, callee), (callee, caller)):
                threading.Thread(target=_hand_on, args=(one, other), daemon=True).start()


def _hand_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while piece := one.recv(PIECE_BYTES):
            other.sendall(piece)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)
