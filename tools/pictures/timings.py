"""Timings of the calls that the admin page makes."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from tests.support.installation.admin_client import api_address, call
from tests.support.installation.proxy_process import ProxyProcess
from tools.pictures.records import far_id

TIMES: Final = 5
PAUSE_S: Final = 0.05
STREAM_LIMIT_S: Final = 60.0


def timings(proxy: ProxyProcess, origin: str) -> dict[str, list[float]]:
    ident = far_id()
    asked: dict[str, Callable[[], object]] = {
        "snapshot": lambda: _snapshot(proxy),
        "by time": lambda: call(proxy, "GET", "/pending/by-time"),
        "listing, first page": lambda: call(proxy, "GET", "/pending/records?limit=50"),
        "listing by target": lambda: call(proxy, "GET", "/pending/records?limit=50&target=surveys"),
        "search by id": lambda: call(proxy, "GET", f"/records?id={ident}"),
        "one record": lambda: call(proxy, "GET", f"/records/{origin}?body=true"),
        "its life": lambda: call(proxy, "GET", f"/records/{origin}/trace"),
    }
    return {name: [_timed(ask) for _ in range(TIMES)] for name, ask in asked.items()}


def line(name: str, taken_ms: list[float]) -> str:
    return f"{name:22} {statistics.median(taken_ms):8.1f} ms, at most {max(taken_ms):8.1f} ms"


def _timed(ask: Callable[[], object]) -> float:
    time.sleep(PAUSE_S)
    started_s = time.monotonic()
    ask()
    return (time.monotonic() - started_s) * 1_000


def _snapshot(proxy: ProxyProcess) -> None:
    connection = http.client.HTTPConnection(api_address(proxy), timeout=STREAM_LIMIT_S)
    with closing(connection):
        connection.request("GET", "/api/v1/events")
        answer = connection.getresponse()
        assert any(line.startswith(b"data: ") for line in answer)
