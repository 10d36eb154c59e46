"""Calls to the admin API of a running proxy."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from typing import Any

from tests.support.installation.proxy_process import ProxyProcess
from tests.support.waiting import LOOK_EVERY_S

ANSWER_LIMIT_S = 180
ACCEPTED, UNAVAILABLE = 202, 503
NOTHING_DONE = ("no-answer", "busy")
SETTINGS = ("/pauses", "/limits", "/ingest", "/log-level")


def api_address(proxy: ProxyProcess) -> str:
    return f"127.0.0.1:{proxy._admin_port()}"


def call(proxy: ProxyProcess, method: str, url: str, body: object = None) -> tuple[int, Any]:
    """Return status and JSON of a call under /api/v1. A proxy waits two seconds for its workers,
    and a few seconds until all have applied a change. On a slow machine these times may be too
    short. Then the call is repeated."""
    until_s = time.monotonic() + ANSWER_LIMIT_S
    while True:
        status, said = _called(proxy, method, url, body)
        if not _is_asked_again(method, url, status, said) or time.monotonic() > until_s:
            return status, said
        time.sleep(LOOK_EVERY_S)


def _called(proxy: ProxyProcess, method: str, url: str, body: object) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(api_address(proxy), timeout=ANSWER_LIMIT_S)
    with closing(connection):
        said = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, f"/api/v1{url}", said, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def _is_asked_again(method: str, url: str, status: int, said: Any) -> bool:
    """Return whether nothing was done yet, or a repetition is harmless."""
    if status == UNAVAILABLE and said["error"] in NOTHING_DONE:
        return True
    sets = method in ("PUT", "DELETE") and url.startswith(SETTINGS)
    return sets and status in (ACCEPTED, UNAVAILABLE)
