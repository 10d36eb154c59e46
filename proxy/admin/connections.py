"""Connections whose requests are still arriving: read by one thread, so that a slow client holds
none, and bounded in time, in number and in bytes."""

import re
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.admin.exchange import MOST_BODY_BYTES

REQUEST_WITHIN_S: Final = 10.0
"""From the connection to the last byte of the request."""
CONNECTIONS_AT_ONCE: Final = 256
"""Beyond them the one that has waited longest is closed."""
MOST_HEAD_BYTES: Final = 65_536
LONGEST_HEAD_END: Final = 4
LOOK_EVERY_S: Final = 0.2
PAUSE_S: Final = 0.05
RECEIVED_AT_ONCE: Final = 65_536
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


@dataclass(slots=True)
class Arriving:
    """A connection, and what has come of its request."""

    socket: socket.socket
    until_s: float
    received: bytearray = field(default_factory=bytearray)
    whole_bytes: int | None = None
    """How long the request is, once its head has come."""

    def take(self, part: bytes) -> bool:
        """Add what has come; whether nothing more is waited for.

        So it is where too much is announced or has come. Nothing is searched twice, however small
        the parts are.
        """
        searched = max(0, len(self.received) - LONGEST_HEAD_END)
        self.received += part
        if self.whole_bytes is None and (end := _HEAD_END.search(self.received, searched)):
            found = _LENGTH.search(self.received, 0, end.end())
            body_bytes = int(found[1]) if found else 0
            self.whole_bytes = end.end() + (body_bytes if body_bytes <= MOST_BODY_BYTES else 0)
        if self.whole_bytes is None:
            return len(self.received) > MOST_HEAD_BYTES
        return len(self.received) >= self.whole_bytes


class Connections:
    """Accepts connections at `listener`, until closed.

    `take` is handed each request that is whole, with its socket, which it closes; `give_up` one
    that has not come in time.
    """

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket, bytes], None],
        give_up: Callable[[socket.socket], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener, self._take, self._give_up, self._now_s = listener, take, give_up, now_s
        self._arriving: dict[int, Arriving] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        listener.setblocking(False)

    def turn(self) -> None:
        """Wait a moment for something to arrive, and take it."""
        for key, _events in self._selector.select(LOOK_EVERY_S):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data.socket.fileno() in self._arriving:  # not closed for another one meanwhile
                self._receive(key.data)
        self._expire()

    def close(self) -> None:
        """Close all of them, and the listener."""
        for connection in list(self._arriving.values()):
            self._forget(connection)
            connection.socket.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            accepted, _address = self._listener.accept()
        except OSError:
            time.sleep(PAUSE_S)  # too many open files, perhaps: `select` would return at once
            return
        accepted.setblocking(False)
        if len(self._arriving) >= CONNECTIONS_AT_ONCE:
            oldest = next(iter(self._arriving.values()))
            self._forget(oldest)
            oldest.socket.close()
        connection = Arriving(accepted, self._now_s() + REQUEST_WITHIN_S)
        self._arriving[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _receive(self, connection: Arriving) -> None:
        try:
            part = connection.socket.recv(RECEIVED_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            part, connection.received = b"", bytearray()
        if part and not connection.take(part):
            return
        self._forget(connection)
        if connection.received:
            self._take(connection.socket, bytes(connection.received))
        else:
            connection.socket.close()

    def _expire(self) -> None:
        """In the order in which they came: the first that may stay ends the search."""
        now_s = self._now_s()
        for connection in list(self._arriving.values()):
            if connection.until_s > now_s:
                return
            self._forget(connection)
            self._give_up(connection.socket)

    def _forget(self, connection: Arriving) -> None:
        del self._arriving[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
