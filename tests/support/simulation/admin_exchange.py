"""Request to an ASGI application without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message


def exchange(
    app: ASGIApp, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    return asyncio.run(_exchange(app, method, url, headers, body))


async def _exchange(
    app: ASGIApp, method: str, url: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    path, _, query = url.partition("?")
    sent: list[Message] = []
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return left.pop() if left else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9464),
        "state": {},
    }
    await app(scope, receive, send)
    start, *parts = sent
    said = {name.decode().title(): text.decode() for name, text in start["headers"]}
    return start["status"], said, b"".join(part["body"] for part in parts)
