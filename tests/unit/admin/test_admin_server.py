"""The API over a real socket: any input gets a clean answer."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from ipaddress import ip_address
from typing import Any

import pytest

from proxy.admin.access import GUESSES_WITHIN_S, MOST_ADDRESSES, MOST_GUESSES, WrongTokens
from proxy.admin.app import MOST_BODY_BYTES
from proxy.admin.calls import CALLS_AT_ONCE
from proxy.admin.problem import Problem
from proxy.admin.queries import Query
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

LIMIT_S = 180.0
TOKEN = "a-token-nobody-guesses"
SHOWN = f"Authorization: Bearer {TOKEN}".encode()


@pytest.fixture
def made() -> MadeUpApi:
    return MadeUpApi(AdminSettings(port=0))


@pytest.fixture
def port(made: MadeUpApi) -> Iterator[int]:
    with closing(AdminServer(made.site)) as server:
        yield server.port


def call(
    port: int, method: str, url: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    with closing(connection):
        connection.request(method, url, body, headers)
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else {}


def raw(port: int, *parts: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def code_of(port: int, path: str, **headers: str) -> int:
    named = {"Host": "localhost", **headers}
    head = "".join(f"{name}: {text}\r\n" for name, text in named.items())
    return int(raw(port, f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()).split()[1])


def test_a_call_is_answered_over_the_socket(port: int) -> None:
    kind = {"Content-Type": "application/json"}
    assert call(port, "GET", "/api/v1/pending")[1]["pending"] == 9
    assert call(port, "POST", "/api/v1/cancellations?wait=1s", b'{"id": "a"}', **kind)[0] == 200
    assert call(port, "HEAD", "/api/v1/pending") == (200, {})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"])
def test_the_pages_beside_the_api_can_only_be_read(port: int, method: str) -> None:
    code, said = call(port, method, "/metrics")
    assert (code, said["error"]) == (405, "method-not-allowed")


def test_a_method_nobody_knows_is_refused_with_those_there_are(port: int) -> None:
    assert call(port, "BREW", "/api/v1/pending")[0] == 405
    assert call(port, "OPTIONS", "/api/v1/cancellations")[0] == 405


def test_a_huge_body_is_refused_unread(port: int) -> None:
    kind = {"Content-Type": "application/json"}
    code, said = call(port, "POST", "/api/v1/cancellations", b"x" * 500_000, **kind)
    assert (code, said["error"]) == (413, "too-large")
    assert MOST_BODY_BYTES < 500_000


def test_a_body_that_ends_too_soon_is_refused(port: int) -> None:
    said = raw(port, b"PUT /api/v1/log-level HTTP/1.1\r\nContent-Length: 99\r\n\r\n{}")
    assert said.split()[1] == b"400"


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"Content-Length: -1", 400),
        (b"Content-Length: many", 400),
        (b"Content-Length: 999999999999999999999", 400),
        (b"Transfer-Encoding: chunked", 411),
    ],
)
def test_a_body_of_no_length_is_refused(port: int, head: bytes, code: int) -> None:
    said = raw(port, b"PUT /api/v1/log-level HTTP/1.1\r\nHost: localhost\r\n", head, b"\r\n\r\n")
    assert said.split()[1] == str(code).encode()
    assert b'"error"' in said


@pytest.mark.parametrize(
    "sent", [b"\x00\xff\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_gets_a_refusal_and_does_no_harm(port: int, sent: bytes) -> None:
    raw(port, sent)
    assert call(port, "GET", "/healthz")[0] in {200, 503}


def test_clients_that_send_no_end_of_what_is_refused_hold_up_nobody(port: int) -> None:
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with ExitStack() as kept:
        for _ in range(4 * CALLS_AT_ONCE):
            client = kept.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT_S))
            client.sendall(head)
            assert client.recv(65_536).split()[1] == b"411"
        assert call(port, "GET", "/api/v1/pending")[0] == 200


def test_probes_are_answered_while_calls_wait(made: MadeUpApi, port: int) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def ask(query: Query[Any]) -> Sequence[Any]:
        begun.release()
        release.wait(LIMIT_S)
        return []

    made.workers.ask = ask  # type: ignore[method-assign]
    calls = [
        threading.Thread(target=call, args=(port, "GET", "/api/v1/pending/by-time"))
        for _ in range(CALLS_AT_ONCE)
    ]
    for thread in calls:
        thread.start()
    for _ in calls:
        assert begun.acquire(timeout=LIMIT_S)
    assert call(port, "GET", "/api/v1/pending")[1]["error"] == "busy"
    assert call(port, "GET", "/readyz")[0] == 200
    release.set()
    for thread in calls:
        thread.join(LIMIT_S)
    assert call(port, "GET", "/api/v1/pending")[0] == 200


@contextmanager
def guarded() -> Iterator[int]:
    made = MadeUpApi(AdminSettings(port=0, token=TOKEN))
    with closing(AdminServer(made.site)) as running:
        yield running.port


def test_every_reply_forbids_to_be_stored_and_to_be_taken_for_another_type(port: int) -> None:
    paths = ["/healthz", "/metrics", "/nothing", "/api/v1/pending", "/api/v1/nothing", "/"]
    for path in paths:
        head = raw(port, f"GET {path} HTTP/1.0\r\n\r\n".encode()).partition(b"\r\n\r\n")[0]
        assert head.count(b"x-content-type-options: nosniff") == 1
        assert head.count(b"cache-control: ") == 1
        assert (b"cache-control: no-store" in head) is (path != "/")
    chunked = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for refused in (chunked, b"\x00\xff\r\n\r\n"):
        assert b"\r\ncache-control: no-store\r\n" in raw(port, refused)


@pytest.mark.parametrize("path", ["/metrics", "/", "/page/page.js", "/nothing"])
def test_a_page_of_another_site_that_leads_its_name_here_reads_nothing(
    port: int, path: str
) -> None:
    for host in ("evil.example", "evil.example:9464", "10.0.0.1.evil.example", "svc.evil.example"):
        assert code_of(port, path, Host=host) == 403
    assert code_of(port, "/readyz", Host="evil.example") in {200, 503}, "a probe"


@pytest.mark.parametrize(
    "host",
    [
        *("10.1.2.3:9464", "[fd00::1]:9464", "127.0.0.1", "localhost", socket.gethostname(), ""),
        *("delay-proxy:9464", "a.b.svc", "a.b.svc.cluster.local:9464"),
    ],
)
def test_prometheus_scrapes_by_address_and_by_the_name_of_a_service(port: int, host: str) -> None:
    assert raw(port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split()[1] == b"200"


def test_with_a_token_any_name_will_do() -> None:
    with guarded() as port:
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "delays.example"}
        assert code_of(port, "/metrics", **right) == 200
        assert code_of(port, "/api/v1/pending", **right) == 200


def test_who_guesses_tokens_is_locked_out_and_probes_are_not() -> None:
    with guarded() as port:
        for number in range(MOST_GUESSES):
            path = ("/api/v1/pending", "/metrics")[number % 2]
            assert code_of(port, path, Authorization=f"Bearer {number}") == 401
        for path in ("/api/v1/pending", "/metrics"):
            said = raw(port, f"GET {path} HTTP/1.1\r\nHost: a\r\n".encode(), SHOWN, b"\r\n\r\n")
            assert said.split()[1] == b"429"
            seconds = int(re.search(rb"\r\nretry-after: (\d+)\r\n", said)[1])  # type: ignore[index]
            assert 50 <= seconds <= 61
        assert code_of(port, "/healthz") in {200, 503}
        assert code_of(port, "/") == 200


def test_who_shows_no_token_has_not_guessed() -> None:
    with guarded() as port:
        for _ in range(2 * MOST_GUESSES):
            assert code_of(port, "/metrics") == 401
        assert code_of(port, "/metrics", Authorization=f"Bearer {TOKEN}") == 200


def test_the_limit_is_each_addresss_own_passes_with_time_and_is_bounded() -> None:
    now_s = [1_000.0]
    wrong = WrongTokens(lambda: now_s[0])
    for _ in range(MOST_GUESSES):
        wrong.refuse("192.0.2.1")
        wrong.add("192.0.2.1")
        wrong.add("2001:db8::1")
    for locked in ("192.0.2.1", "2001:db8::1", "2001:db8::ffff:2%eth0"):
        with pytest.raises(Problem, match="Too many wrong tokens"):
            wrong.refuse(locked)
    for other in ("192.0.2.2", "2001:db8:0:1::1", "::ffff:192.0.2.2", "no address"):
        wrong.refuse(other)
    now_s[0] += GUESSES_WITHIN_S
    wrong.refuse("192.0.2.1")
    for number in range(MOST_ADDRESSES):
        wrong.add(str(ip_address(number)))
    wrong.add("198.51.100.1")
    assert len(wrong._counted) == MOST_ADDRESSES
