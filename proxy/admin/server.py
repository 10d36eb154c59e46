"""The admin port: uvicorn in a thread, with bounds on connections, time and bytes."""

import asyncio
import json
import socket
import sys
import threading
import time
from http import HTTPStatus
from typing import Any, Final, cast

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.admin.access import BACKLOG, listen
from proxy.admin.app import ALWAYS_SENT, AdminApp
from proxy.admin.calls import Site
from proxy.admin.tls import Certificate, TlsProtocol

REQUEST_WITHIN_S: Final = 10.0
"""Time limit from the start of the connection to the last byte of the request."""
REPLY_WITHIN_S: Final = 10.0
"""A client that leaves a part of the reply unread for this long is disconnected."""
CONNECTIONS_AT_ONCE: Final = 256
"""Limit of connections with incomplete requests. If one more is opened, the oldest is closed."""
MOST_HEAD_BYTES: Final = 65_536
START_POLL_S: Final = 0.01
LOOK_EVERY_S: Final = 1.0
"""Token files and certificates are read again after this time."""
STOP_WITHIN_S: Final = 1
"""When the server stops, calls that take longer are abandoned. Their threads do not keep the
process alive."""

log = structlog.get_logger(__name__)


class AdminServer:
    """A server of the admin port. Raises PortTaken, SettingsError."""

    def __init__(self, site: Site) -> None:
        self._certificate = Certificate(site.settings.admin.tls)
        listener = listen(site.settings.admin)
        self.port: int = listener.getsockname()[1]
        self.app = AdminApp(site)
        self._tls_connections: dict[TlsProtocol, None] = {}
        config = uvicorn.Config(
            self.app,
            loop="asyncio",
            http=cast(Any, self._protocol),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("server", "kafka-delay-proxy")],
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            timeout_graceful_shutdown=STOP_WITHIN_S,
            backlog=BACKLOG,
        )
        self._server = _Server(config, site)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="admin")
        self._thread.daemon = True
        self._thread.start()
        self._is_closed = threading.Event()
        watch = threading.Thread(target=self._watch, name="admin-files")
        watch.daemon = True  # a file system that hangs must not keep the process alive
        watch.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(START_POLL_S)

    def _protocol(self, **of_server: Any) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        http, context = BoundedProtocol(**of_server), self._certificate.context
        return http if context is None else TlsProtocol(http, context, self._tls_connections)

    def _watch(self) -> None:
        """Load changed token files and certificates. If a file system hangs, only this thread
        hangs, and the server still answers probes."""
        while not self._is_closed.wait(LOOK_EVERY_S):
            try:
                self.app.tokens.look()
                self._certificate.look()
            except Exception:
                log.exception("files of the admin port could not be read")

    def close(self) -> None:
        self._is_closed.set()
        self._server.should_exit = True
        self._thread.join()


class _Server(uvicorn.Server):
    """A server that checks for slow clients ten times a second."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def on_tick(self, counter: int) -> bool:
        now_s = time.monotonic()
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedProtocol):
                connection.end_if_slow(now_s)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.events.close()
        await super().shutdown(sockets)


class BoundedProtocol(H11Protocol):
    """HTTP with one request per connection, and bounds that uvicorn lacks."""

    cycle: Any
    """The current request. None until its head is complete."""
    since_s = 0.0
    raw: asyncio.Transport | None = None
    """The transport below TLS."""
    _unsent_since_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        arriving = [
            one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_arriving
        ]
        if len(arriving) >= CONNECTIONS_AT_ONCE:
            min(arriving, key=lambda one: one.since_s).transport.abort()
        self.since_s = time.monotonic()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Without this the transport refers to itself. It would never be freed, because the garbage
        # collector is off in a worker's process.
        vars(self.transport).pop("_read_ready_cb", None)
        self.raw = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open. A client may close its side and still read the
        reply."""
        is_begun = self.cycle is not None or bool(self.conn.trailing_data[0])
        if self.is_arriving and is_begun:
            self._refuse(400, "bad-request", "The request is shorter than it has to be.")
        return is_begun and self.raw is None  # TLS cannot stay half open

    def end_if_slow(self, now_s: float) -> None:
        """Refuse a late request. Disconnect a client that does not read."""
        if self.is_arriving and now_s - self.since_s >= REQUEST_WITHIN_S:
            self._refuse(408, "too-slow", "The request did not arrive in time. Send it again.")
        elif self._unsent_bytes() == 0:
            self._unsent_since_s = None
        elif self._unsent_since_s is None:
            self._unsent_since_s = now_s
        elif now_s - self._unsent_since_s >= REPLY_WITHIN_S:
            self.transport.abort()

    def _unsent_bytes(self) -> int:
        below = 0 if self.raw is None else self.raw.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + below

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP. Called while h11's error is handled."""
        error = sys.exception()
        code = getattr(error, "error_status_hint", 400)
        self._refuse(code, "bad-request", str(error or msg))

    @property
    def is_arriving(self) -> bool:
        if self.transport.is_closing():
            return False
        return self.cycle is None or (self.cycle.more_body and not self.cycle.response_started)

    def _refuse(self, code: int, error: str, detail: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": error, "detail": detail}).encode() + b"\n"
        headers: list[Any] = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *ALWAYS_SENT.items(),
        ]
        reason = HTTPStatus(code).phrase.encode()
        reply = h11.Response(status_code=code, headers=headers, reason=reason)
        try:
            for event in (reply, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # a reply has begun
            self.transport.abort()
        self.transport.close()
