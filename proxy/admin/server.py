"""The sockets of the admin port: a thread for each request, few at a time."""

import errno
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry

from proxy.admin.api import AdminApi
from proxy.admin.exchange import (
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

REQUEST_LIMIT_S = 10.0
REQUESTS_AT_ONCE = 8
CALLS_AT_ONCE = 4
"""Of the API: calls that wait for something leave room for the probes."""
API = "/api/"
MOST_DISCARDED_BYTES = 1_048_576
MOST_DIGITS = 18


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
        self._server = _listen(settings, pages, api)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="admin", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port listened on; the one picked, where the settings say 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening; requests in hand end within their time limit."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listen(settings: AdminSettings, pages: AdminPages, api: AdminApi | None) -> "_BoundedServer":
    try:
        return _BoundedServer((settings.host, settings.port), pages, api)
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


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], pages: AdminPages, api: AdminApi | None) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_AT_ONCE)
        self._free_calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._pages, self._api = pages, api
        super().__init__(address, _Handler)

    def answered(self, request: Request) -> Reply:
        """The reply to a request that has been read."""
        if self._api is None or not request.path.startswith(API):
            if request.method != "GET":
                detail = "This page can only be read."
                return problem(405, "method-not-allowed", detail, (("Allow", "GET, HEAD"),))
            return self._pages.answer(request.path, request.headers.get("authorization", ""))
        if not self._free_calls.acquire(blocking=False):
            return problem(503, "busy", "Other calls are waited for; try again.")
        try:
            return self._api.answer(request)
        finally:
            self._free_calls.release()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request, or hang up while all threads are busy."""
        if not self._free.acquire(timeout=1):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: _BoundedServer
    timeout = REQUEST_LIMIT_S
    server_version = "kafka-delay-proxy"
    sys_version = ""

    def do_GET(self) -> None:
        """Read the request, whatever its method, and reply."""
        headers = {name.lower(): text for name, text in self.headers.items()}
        try:
            body = self._body(headers)
        except Problem as refused:
            self._reply(refused.reply)
            return
        method = "GET" if self.command == "HEAD" else self.command
        self._reply(self.server.answered(Request(method, self.path, headers, body)))

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
            raise Problem(411, "length-required", "Send the body with its Content-Length.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS):
            raise bad_request("Content-Length is not a number.")
        if int(length) > MOST_BODY_BYTES:
            self._discard(int(length))
            raise Problem(413, "too-large", f"A body has at most {MOST_BODY_BYTES} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise bad_request("The body is shorter than its Content-Length.")
        return body

    def _discard(self, size_bytes: int) -> None:
        """Take a little of what is too large, so that the client gets to read the refusal."""
        left = min(size_bytes, MOST_DISCARDED_BYTES)
        while left > 0 and (part := self.rfile.read(min(left, 65_536))):
            left -= len(part)

    def _reply(self, reply: Reply) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        for name, text in reply.headers:
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
