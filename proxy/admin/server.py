"""The admin port: requests are read by one thread, and probes answered there; each other request
has a thread for its reply, few at a time."""

import errno
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from proxy.admin.access import WrongTokens, refuse_foreign_name
from proxy.admin.api import AdminApi
from proxy.admin.connections import Connections
from proxy.admin.exchange import (
    EVENT_STREAM,
    MOST_BODY_BYTES,
    Problem,
    Reply,
    Request,
    bad_request,
    problem,
)
from proxy.admin.pages import AdminPages
from proxy.config.settings import AdminSettings
from proxy.errors import PortTaken, SettingsError
from proxy.telemetry.status import Status

REPLY_WITHIN_S: Final = 10.0
REQUESTS_AT_ONCE: Final = 8
CALLS_AT_ONCE: Final = 4
"""Of the API: calls that wait for something leave room for the pages."""
DISCARDS_AT_ONCE: Final = 2
"""Of what is too large: they take no slot of a reply, and beyond these the connection is cut."""
PROBE: Final = re.compile(rb"(GET|HEAD) /(healthz|readyz)[ ?]")
BUSY: Final = problem(503, "busy", "Other calls are waited for; try again.")
TOO_SLOW: Final = problem(408, "too-slow", "The request has not come in time.")
API: Final = "/api/"
BACKLOG: Final = 128
MOST_DISCARDED_BYTES: Final = 1_048_576
DISCARD_WITHIN_S: Final = 2.0
MOST_DIGITS: Final = 18
ALWAYS_SENT: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Unless the reply says otherwise."""


log = structlog.get_logger(__name__)


class AdminServer:
    """Serves the admin port until closed.

    `read_statuses` gives one `Status` per worker. Raises PortTaken when something else listens
    on the port, SettingsError when the host is not one of this machine's.
    """

    def __init__(
        self,
        settings: AdminSettings,
        registry: CollectorRegistry,
        read_statuses: Callable[[], Sequence[Status]],
        api: AdminApi | None = None,
    ) -> None:
        pages = AdminPages(registry, read_statuses, settings.token)
        replies = _Replies(pages, api, has_token=settings.token is not None)
        listener = _listen(settings)
        self.port: int = listener.getsockname()[1]
        """The port listened on; the one picked, where the settings say 0."""
        self._end_streams = replies.end_streams
        self._connections = Connections(listener, replies.take, replies.give_up)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="admin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests in hand end within their time limit."""
        self._is_closing.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_closing.is_set():
            try:
                self._connections.turn()
            except Exception:
                log.exception("a request to the admin port went wrong")
        self._connections.close()
        self._end_streams()


def _listen(settings: AdminSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server(
            (settings.host, settings.port),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=settings.host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            choose = (
                "Stop what listens there, or choose another `admin: port` (0 picks a free one)."
            )
            raise PortTaken(settings.host, settings.port, choose) from None
        raise SettingsError(
            f"The admin server cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            "Correct `admin: host` and `admin: port`.",
        ) from None


class _Replies:
    """Replies to requests: to probes at once, to others in threads of their own, few at a time."""

    def __init__(self, pages: AdminPages, api: AdminApi | None, *, has_token: bool) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_AT_ONCE)
        self._free_calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._free_discards = threading.BoundedSemaphore(DISCARDS_AT_ONCE)
        self._pages, self._api = pages, api
        self._has_token, self._wrong_tokens = has_token, WrongTokens()

    def take(self, client: socket.socket, sent: bytes) -> None:
        """Reply to a request, sooner or later."""
        if PROBE.match(sent):
            _send_at_once(client, _Handler(sent, self._answered).reply)
        elif self._free.acquire(blocking=False):
            threading.Thread(target=self._reply, args=(client, sent), daemon=True).start()
        else:
            _send_at_once(client, _Handler(sent, lambda _: BUSY).reply)

    def give_up(self, client: socket.socket) -> None:
        """The request has not come in time."""
        _send_at_once(client, _Handler(b"GET / HTTP/1.0\r\n\r\n", lambda _: TOO_SLOW).reply)

    def end_streams(self) -> None:
        """The port closes."""
        if self._api is not None:
            self._api.streams.close()

    def _reply(self, client: socket.socket, sent: bytes) -> None:
        with client, suppress(OSError):
            try:
                handler = _Handler(sent, partial(self._admitted, str(client.getpeername()[0])))
                client.settimeout(REPLY_WITHIN_S)
                client.sendall(handler.reply)
                if handler.is_stream and self._api is not None:
                    self._api.streams.add(client.dup())
            finally:
                self._free.release()
            if handler.is_cut and self._free_discards.acquire(blocking=False):
                try:
                    _discard(client)
                finally:
                    self._free_discards.release()

    def _admitted(self, address: str, request: Request) -> Reply:
        """The reply to what is no probe."""
        is_guess = self._has_token and "authorization" in request.headers
        try:
            if is_guess:
                self._wrong_tokens.refuse(address)
            elif not self._has_token:
                refuse_foreign_name(request.headers.get("host", ""))
        except Problem as refused:
            return refused.reply
        reply = self._answered(request)
        if is_guess and reply.code == HTTPStatus.UNAUTHORIZED:
            self._wrong_tokens.add(address)
        return reply

    def _answered(self, request: Request) -> Reply:
        if self._api is None or not request.path.startswith(API):
            if request.method != "GET":
                detail = "This page can only be read."
                return problem(405, "method-not-allowed", detail, (("Allow", "GET, HEAD"),))
            return self._pages.answer(request.path, request.headers.get("authorization", ""))
        if not self._free_calls.acquire(blocking=False):
            return BUSY
        try:
            return self._api.answer(request)
        finally:
            self._free_calls.release()


class _Handler(BaseHTTPRequestHandler):
    """Parses a request that has come, and writes the reply to it; no sockets.

    `is_cut`: there is more of the request than was read. `is_stream`: more of the reply follows.
    """

    server_version = "kafka-delay-proxy"
    sys_version = ""

    def __init__(self, sent: bytes, answered: Callable[[Request], Reply]) -> None:
        self._written = BytesIO()
        self.rfile, self.wfile = BytesIO(sent), self._written
        self.client_address, self.request_version = ("", 0), "HTTP/1.0"
        self.command, self.requestline = "", ""
        self.close_connection, self.is_cut, self.is_stream = True, False, False
        self._answered = answered
        self.handle_one_request()

    @property
    def reply(self) -> bytes:
        """What is to be sent."""
        return self._written.getvalue()

    def do_GET(self) -> None:
        """Read the request, whatever its method, and reply."""
        headers = {name.lower(): text for name, text in self.headers.items()}
        try:
            body = self._body(headers)
        except Problem as refused:
            self._reply(refused.reply)
            return
        method = "GET" if self.command == "HEAD" else self.command
        self._reply(self._answered(Request(method, self.path, headers, body)))

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Any other method is read as well: it gets a clean refusal."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no HTTP is refused like everything else."""
        self._reply(problem(code, "bad-request", message or explain or "This is no HTTP."))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No line per request."""

    def _body(self, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" in headers:
            self.is_cut = True
            raise Problem(411, "length-required", "Send the body with its Content-Length.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS):
            raise bad_request("Content-Length is not a number.")
        if int(length) > MOST_BODY_BYTES:
            self.is_cut = True
            raise Problem(413, "too-large", f"A body has at most {MOST_BODY_BYTES} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise bad_request("The body is shorter than its Content-Length.")
        return body

    def _reply(self, reply: Reply) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        if reply.content_type == EVENT_STREAM:
            self.is_stream = self.command != "HEAD"
        else:
            self.send_header("Content-Length", str(len(reply.body)))
        for name, text in (ALWAYS_SENT | dict(reply.headers)).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)


def _send_at_once(client: socket.socket, reply: bytes) -> None:
    """What its buffer takes without waiting, which is all of a small reply."""
    with client, suppress(OSError):
        client.send(reply)


def _discard(client: socket.socket) -> None:
    """Take a little of what is too large, so that the client gets to read the refusal."""
    client.shutdown(socket.SHUT_WR)
    client.settimeout(DISCARD_WITHIN_S)
    left, until_s = MOST_DISCARDED_BYTES, time.monotonic() + DISCARD_WITHIN_S
    while left > 0 and time.monotonic() < until_s and (part := client.recv(65_536)):
        left -= len(part)
