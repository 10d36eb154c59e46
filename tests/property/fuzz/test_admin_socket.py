"""Random bytes at the admin port get a complete HTTP answer or a closed connection."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

LIMIT_S = 60.0
HOST = b"\r\nHost: a"
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

lines = st.sampled_from([b"\r\n", b"\n", b"\r", b"", b" ", b"\r\n\r\n", b"\n\n", b"\x00"])
methods = st.sampled_from([b"GET", b"PUT", b"POST", b"DELETE", b"HEAD", b"get", b"", b"\xff"])
urls = st.one_of(
    st.sampled_from(
        [
            b"/metrics",
            b"/readyz",
            b"*",
            b"",
            b"//",
            b"/api/v1/records?id=%ff",
            b"/api/v1/pauses/%00",
        ]
    ),
    st.binary(max_size=60).map(lambda raw: b"/api/v1/" + raw),
)
fields = st.one_of(
    st.sampled_from(
        [
            *(
                b"Content-Length: 5",
                b"Content-Length: -5",
                b"Content-Length: 5\r\nContent-Length: 6",
            ),
            *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Upgrade: websocket"),
            *(b"Authorization: Bearer \xff", b" folded", b": no name", b"no colon", b"Host:\x00"),
        ]
    ),
    st.binary(max_size=40),
)
requests = st.builds(
    lambda method, url, version, host, heads, end, body: (
        method
        + b" "
        + url
        + version
        + b"\r\nHost: a" * host
        + b"".join(b"\r\n" + head for head in heads)
        + end
        + body
    ),
    methods,
    urls,
    st.sampled_from([b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9", b"", b" HTTP/1.1 x"]),
    st.booleans(),
    st.lists(fields, max_size=4),
    lines,
    st.binary(max_size=80),
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    made = MadeUpApi(AdminSettings(port=0))
    with closing(AdminServer(made.site)) as server:
        yield server.port


def answer_to(port: int, sent: bytes) -> bytes:
    """Return the whole answer. The server may close the connection while the test still sends."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        received = bytearray()
        with suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                received += part
        return bytes(received)


@FEW
@given(st.one_of(st.binary(max_size=300), requests))
@example(b"")
@example(b"\x00" * 70_000)
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
@example(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 200 + b"\r\n")
@example(b"GET /" + b"a" * 66_000 + b" HTTP/1.1\r\n\r\n")
@example(b"GET /api/v1/records/%ff/%2f/-1 HTTP/1.1\r\nHost: a\r\n\r\n")
@example(b"GET /api/v1/pending?a=b&a=c&%=%zz HTTP/1.1\r\nHost: a\r\n\r\n")
@example(
    b"POST /api/v1/cancellations HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff"
)
@example(
    b"PUT /api/v1/log-level HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n"
    + b"[" * 60_000
)
@example(b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n")
def test_any_bytes_get_a_clean_answer(port: int, sent: bytes) -> None:
    """Invariant: no bytes cause a server error, and the next request is answered. Text without an
    HTTP version gets no status line."""
    answer = answer_to(port, sent)
    status = STATUS.match(answer)
    assert not status or int(status[1]) not in {500, 501, 502}
    healthy = STATUS.match(answer_to(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
    assert healthy
    assert int(healthy[1]) in {200, 503}
