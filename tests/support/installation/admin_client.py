"""Calls to the admin API of a running proxy."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any

from tests.support.installation.proxy_process import ProxyProcess

ANSWER_LIMIT_S = 180


def api_address(proxy: ProxyProcess) -> str:
    """host:port of its admin port."""
    return f"127.0.0.1:{proxy._admin_port()}"


def call(proxy: ProxyProcess, method: str, url: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of a call under /api/v1."""
    connection = http.client.HTTPConnection(api_address(proxy), timeout=ANSWER_LIMIT_S)
    with closing(connection):
        said = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, f"/api/v1{url}", said, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
