"""Server-sent events: a snapshot a second to each page that is open.

One thread makes and sends them while there are pages. What a reader does not take at once is not
kept for it: its stream ends, and the page asks for a new one.
"""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from proxy.admin.exchange import EVENT_STREAM, Problem, Reply, Request

MOST_STREAMS: Final = 16
EVERY_S: Final = 1.0
SEND_BUFFER_BYTES: Final = 262_144

log = structlog.get_logger(__name__)


class EventStreams:
    """`make` is given the time in epoch milliseconds, and gives what is sent."""

    def __init__(self, make: Callable[[int], dict[str, Any]], now_ms: Callable[[], int]) -> None:
        self._make, self._now_ms = make, now_ms
        self._lock = threading.Lock()
        self._clients: list[socket.socket] = []
        self._is_sending = False
        self._is_closed = threading.Event()

    def begin(self, request: Request) -> Reply:
        """The head of a stream; `add` is to be called once it is sent. Raises Problem."""
        request.query()
        with self._lock:
            if len(self._clients) >= MOST_STREAMS:
                detail = f"{MOST_STREAMS} streams are open already; close one."
                raise Problem(503, "busy", detail)
        return Reply(200, EVENT_STREAM, b": begins\n\n", (("Cache-Control", "no-store"),))

    def add(self, client: socket.socket) -> None:
        """Send to this client, too, until it goes; closes it at once where there are too many."""
        with self._lock:
            if self._is_closed.is_set() or len(self._clients) >= MOST_STREAMS:
                client.close()
                return
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            client.setblocking(False)
            self._clients.append(client)
            if not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._run, name="events", daemon=True).start()

    def close(self) -> None:
        """End all streams."""
        self._is_closed.set()
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()

    def _run(self) -> None:
        while True:
            try:
                event = f"data: {json.dumps(self._make(self._now_ms()))}\n\n".encode()
            except Exception:
                log.exception("a snapshot for the page could not be made")
                event = b": no snapshot\n\n"
            with self._lock:
                self._clients = [client for client in self._clients if _took(client, event)]
                if not self._clients:
                    self._is_sending = False
                    return
            self._is_closed.wait(EVERY_S)


def _took(client: socket.socket, event: bytes) -> bool:
    """Whether the client has taken all of it; else it is closed."""
    with suppress(OSError):
        if client.send(event) == len(event):
            return True
    client.close()
    return False
