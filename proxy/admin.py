"""The small HTTP server on the admin port: /metrics, /healthz, /readyz.

It answers from snapshots alone, on threads of its own, so a scrape never waits for the worker's
loop and never delays it.
"""

import errno
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from proxy.errors import PortTaken, SettingsError
from proxy.settings import AdminSettings
from proxy.status import CAUGHT_UP, Status

HEARTBEAT_LIMIT_S = 30.0
REQUEST_LIMIT_S = 10.0
REQUESTS_AT_ONCE = 8
INDEX = """kafka-delay-proxy
/metrics  for Prometheus
/healthz  200 while the loop of every worker turns
/readyz   200 once every assigned shard has caught up
"""

Answer = tuple[int, str, bytes]


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
    ) -> None:
        pages = AdminPages(registry, read_statuses, settings.token)
        self._server = _listen(settings, pages)
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


class AdminPages:
    """What is answered to which path; no sockets here."""

    def __init__(
        self,
        registry: CollectorRegistry,
        read_statuses: Callable[[], Sequence[Status]],
        token: str | None = None,
        now_monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._read_statuses = read_statuses
        self._token = token
        self._now_monotonic = now_monotonic

    def answer(self, path: str, authorization: str) -> Answer:
        """Status code, content type and body. Probes are open; the rest asks for the token."""
        if path == "/healthz":
            return self._health()
        if path == "/readyz":
            return self._readiness()
        if not self._allowed(authorization):
            return _text(401, "This page needs the header `Authorization: Bearer <admin.token>`.\n")
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/":
            return _text(200, INDEX)
        return _text(404, f"There is no such page.\n{INDEX}")

    def _allowed(self, authorization: str) -> bool:
        if self._token is None:
            return True
        expected = f"Bearer {self._token}"
        return hmac.compare_digest(authorization.encode(), expected.encode())

    def _health(self) -> Answer:
        now = self._now_monotonic()
        silent_s = max(
            (now - status.heartbeat_monotonic for status in self._read_statuses()), default=None
        )
        if silent_s is None:
            return _json(503, {"healthy": False, "reason": "no worker has started yet"})
        if silent_s >= HEARTBEAT_LIMIT_S:
            reason = f"a worker's loop has not turned for {silent_s:.0f} s"
            return _json(503, {"healthy": False, "reason": reason})
        return _json(200, {"healthy": True})

    def _readiness(self) -> Answer:
        statuses = self._read_statuses()
        if not statuses or not all(status.assigned for status in statuses):
            reason = "the consumer group has not assigned partitions yet"
            return _json(503, {"ready": False, "reason": reason, "waiting": []})
        waiting = [
            {
                "topic": shard.topic,
                "partition": shard.partition,
                "state": shard.state,
                "behind": shard.behind,
            }
            for status in statuses
            for shard in status.shards
            if shard.state not in CAUGHT_UP
        ]
        if waiting:
            reason = "shards are still catching up with their ingress partition"
            return _json(503, {"ready": False, "reason": reason, "waiting": waiting})
        shards = sum(len(status.shards) for status in statuses)
        return _json(200, {"ready": True, "shards": shards})


def _listen(settings: AdminSettings, pages: AdminPages) -> "_BoundedServer":
    try:
        return _BoundedServer((settings.host, settings.port), _handler(pages))
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

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_AT_ONCE)
        super().__init__(address, handler)

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


def _handler(pages: AdminPages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_LIMIT_S
        server_version = "kafka-delay-proxy"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            code, content_type, body = pages.answer(path, self.headers.get("Authorization", ""))
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """No line per request."""

    return Handler


def _text(code: int, text: str) -> Answer:
    return code, "text/plain; charset=utf-8", text.encode()


def _json(code: int, value: Mapping[str, Any]) -> Answer:
    return code, "application/json", json.dumps(value).encode() + b"\n"
