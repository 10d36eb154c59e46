"""The application behind the admin port: limits, access, probes, pages, and the API."""

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.admin import letters, models, moves, records, targets
from proxy.admin.access import WrongTokens, admit, refuse_foreign_name
from proxy.admin.answers import Instances
from proxy.admin.calls import (
    JSON_TYPE,
    REFUSED,
    CallerOf,
    CallRoute,
    Limit,
    Site,
    SiteOf,
    json_reply,
    refusal_of,
)
from proxy.admin.changes import Changes
from proxy.admin.identity import Identity, identity_of
from proxy.admin.instances import instances_of
from proxy.admin.pages import FILE_HEADERS, INDEX, health, page_file, readiness
from proxy.admin.peers import ALONE, GROUP, INSTANCE, PREFIX, SCOPE, Asker
from proxy.admin.problem import Problem, bad_request
from proxy.admin.threads import in_thread, room_in
from proxy.admin.tokens import Caller, Tokens, needs
from proxy.admin.whole_group import OthersOf

log = structlog.get_logger(__name__)

MOST_BODY_BYTES: Final = 65_536
MOST_DIGITS: Final = 18
SCRAPES_AT_ONCE: Final = 4
DISCARDS_AT_ONCE: Final = 2
"""After a refusal, a part of the unread body is read and dropped, because some clients read no
reply while they send. This is done for at most this many requests at the same time."""
MOST_DISCARDED_BYTES: Final = 1_048_576
DISCARD_WITHIN_S: Final = 2.0
ALWAYS_SENT: Final = {
    b"connection": b"close",
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
}
"""Headers of each reply, unless the call sets them itself."""
DESCRIPTION: Final = """\
Calls with which operators observe and control a running proxy. The admin port serves them.

Any instance answers for the whole group, if the setting `admin.peers` leads to all instances.
The fields `complete` and `unanswered` of a reply show whether a part is missing. With the header
`Delay-Proxy-Scope: instance` the called instance answers for its own partitions only.
A change (a cancel, a pause, a limit) applies to all instances. Call any instance.
All times are epoch milliseconds. Durations are written `500ms`, `30s`, `5m`, `2h`, `7d`.
"""
TAGS: Final = {
    "records": "List, find, trace, cancel, recall and reschedule records.",
    "targets": "Pause, limit and purge targets. Pause the ingest.",
    "dead letters": "List and replay records that could not be delivered.",
    "process": "The process itself.",
}
TOKEN: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `admin.token` or `admin.tokens`. Its role decides which calls it "
    "may make. Without a token in the settings the API answers only if other machines cannot reach "
    "the admin port.",
}

process = APIRouter(route_class=CallRoute, tags=["process"], responses=REFUSED)


@process.get("/openapi.json", response_model=dict[str, Any])
@needs("viewer")
async def get_document() -> Response:
    """Return this document."""
    return Response(json.dumps(document()), media_type=JSON_TYPE)


@process.get("/me")
@needs("metrics")
def get_caller(caller: CallerOf) -> models.Me:
    """Show the name and the role of the caller."""
    return models.Me(name=caller.name, role=caller.role, contents=caller.contents)


@process.get("/instance")
@needs("viewer")
def get_instance(site: SiteOf) -> Identity:
    """Show which process answers: its cluster, group and name."""
    return identity_of(site.settings, site.broker.cluster_id())


@process.get("/changes")
@needs("operator")
def get_changes(site: SiteOf, limit: Limit = 100) -> Changes:
    """List the changes that callers of the admin port made or tried to make, the newest first.

    All instances give the same list. Dry runs are left out.
    """
    with room_in(site.free_readings, "Two other calls are reading topics. Try again."):
        return Changes(changes=site.topics.changes(limit))


@process.get("/instances", response_model=Instances)
@needs("viewer")
async def get_instances(site: SiteOf, others: OthersOf) -> Response:
    """Show all instances of the group, their totals, and the instances that did not answer.

    The numbers of overdue and paused records are at most five seconds old. All other figures are at
    most a second old.
    """
    return json_reply(200, instances_of(await site.events.whole(others.asker)))


@process.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
@needs("viewer")
async def get_events(site: SiteOf, request: Request) -> Response:
    """Stream the data of the operators' page, once a second.

    The stream of server-sent events has no end. The data of each event is one snapshot in JSON.
    The fields belong to the page of the same version and may change with any release. At most 16
    streams run at a time. A stream ends if its reader is too slow, or its token is removed. With
    the header `Delay-Proxy-Scope: instance` the reply is one snapshot of this instance.
    """
    if request.state.is_alone:
        return Response(json.dumps(await site.events.own()), media_type=JSON_TYPE)
    events = site.events.begin(request.state.asker)
    if request.state.is_head:
        return Response(media_type="text/event-stream")
    return StreamingResponse(events, media_type="text/event-stream")


@process.get("/log-level")
@needs("viewer")
def get_log_level(site: SiteOf) -> models.LogLevel:
    """Show the log level."""
    return models.LogLevel(level=site.level)


@process.put("/log-level")
@needs("admin")
def set_log_level(site: SiteOf, body: models.LogLevel) -> models.LogLevel:
    """Set the log level of all workers, until the process ends."""
    site.level = body.level
    site.workers.set_level(body.level)
    return body


async def _no_call(request: Request, _: Exception) -> Response:
    path = request.scope["path"]
    methods = {
        method
        for route in CALLS
        if route.path_regex.match(path.removeprefix(PREFIX))
        for method in route.methods or ()
    }
    if methods:
        allowed = ", ".join(sorted(methods))
        detail = f"This path allows only {allowed}."
        return refusal_of(Problem(405, "method-not-allowed", detail, {"Allow": allowed}), path)
    detail = f"There is no call {path[:200]}. {PREFIX}/openapi.json lists all calls."
    return refusal_of(Problem(404, "no-such-path", detail), path)


CALLS: Final = [
    route
    for router in (records.router, moves.router, targets.router, letters.router, process)
    for route in router.routes
    if isinstance(route, CallRoute)
]
api = FastAPI(
    title="kafka-delay-proxy admin API",
    version="1",
    description=DESCRIPTION,
    license_info={"name": "MIT", "identifier": "MIT"},
    servers=[{"url": f"http://127.0.0.1:9464{PREFIX}"}],
    openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    openapi_url=None,
    redirect_slashes=False,
    exception_handlers={HTTPException: _no_call},
)
api.router.routes.extend(CALLS)


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of the API. Its calls share one description of refusals."""
    found = api.openapi()
    refused = {"$ref": "#/components/responses/Refused"}
    for one in [one for path in found["paths"].values() for one in path.values()]:
        found["components"]["responses"] = {"Refused": one["responses"]["default"]}
        one["responses"]["default"] = refused
        for parameter in one.get("parameters", []):
            if parameter["name"] == "wait":
                parameter["schema"]["default"] = f"{parameter['schema']['default']}s"
    found["components"]["securitySchemes"] = {"token": TOKEN}
    found["security"] = [{"token": []}, {}]
    return found


class AdminApp:
    """The ASGI application of the admin port: the page, probes, metrics and the API."""

    def __init__(self, site: Site) -> None:
        self._site, self.tokens = site, Tokens(site.settings.admin)
        self._wrong_tokens = WrongTokens()
        self._free_scrapes = threading.BoundedSemaphore(SCRAPES_AT_ONCE)
        self._free_discards = threading.BoundedSemaphore(DISCARDS_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        always = dict(ALWAYS_SENT)
        send = partial(_send_always, send, always)
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        path = bytes(scope["raw_path"]).decode("latin-1")  # undecoded: %2F is no separator
        is_head = scope["method"] == "HEAD"
        is_alone = headers.get(SCOPE) == ALONE
        state: dict[str, Any] = {"site": self._site, "is_head": is_head, "is_alone": is_alone}
        inner = {
            **scope,
            "path": path,
            "root_path": PREFIX,
            "method": "GET" if is_head else scope["method"],
            "state": state,
        }
        try:
            has_body = _body_bytes(headers) > 0
        except Problem as refused:
            await self._refuse_unread(refusal_of(refused, path), receive, send)
            return
        with suppress(ClientDisconnect):
            if has_body:
                receive = _replayed(await Request(scope, receive).body(), receive)
            try:
                reply = await self._reply(scope, path, headers, state, always)
            except Exception as error:  # noqa: BLE001 (a defect is logged)
                reply = refusal_of(error, path)
            await reply(inner, receive, send)

    async def _reply(
        self,
        scope: Scope,
        path: str,
        headers: Mapping[str, str],
        state: dict[str, Any],
        always: dict[bytes, bytes],
    ) -> ASGIApp:
        is_read = scope["method"] in {"GET", "HEAD"}
        if path in {"/healthz", "/readyz"} and is_read:
            statuses = self._site.read_statuses()
            is_health = path == "/healthz"
            code, said = health(statuses, time.monotonic()) if is_health else readiness(statuses)
            return Response(f"{json.dumps(said)}\n", code, media_type=JSON_TYPE)
        is_page = not path.startswith("/api/")
        if not self.tokens.is_needed:
            refuse_foreign_name(headers.get("host", ""))
        if is_page and not is_read:
            detail = "This page allows only GET and HEAD."
            raise Problem(405, "method-not-allowed", detail, {"Allow": "GET, HEAD"})
        if is_page and (file := page_file(path)) is not None:
            return Response(file[1], headers={"Content-Type": file[0], **FILE_HEADERS})
        state["caller"] = self._caller(scope, headers)
        if is_page:
            return await self._page(path)
        if not self.tokens.is_needed:
            admit(self._site.settings.admin, headers)
        state["asker"] = self._asker(headers)
        if GROUP in headers:
            await self._answer_peer(headers[GROUP], always)
        return api

    def _asker(self, headers: Mapping[str, str]) -> Asker:
        """Return the caller, with the headers that prove to the peers who it is."""
        names = {"authorization", (self._site.settings.admin.trusted_header or "").lower()}
        sent = {name: text for name, text in headers.items() if name in names}
        authorization = sent.get("authorization", "")
        return Asker(sent, lambda: self.tokens.caller(authorization) is not None)

    async def _answer_peer(self, group: str, always: dict[bytes, bytes]) -> None:
        """Add the reply headers that name this instance and its group. Raise Problem if the request
        is for another group or cluster, or if this instance does not know its own cluster yet."""
        peers = self._site.peers
        own = await in_thread(peers.identity)
        always[INSTANCE.encode()] = peers.own_header().encode()
        if own is None:
            raise Problem(503, "no-answer", "The cluster is not known yet. Try again.")
        always[GROUP.encode()] = own.encode()
        if own != group:
            raise Problem(409, "other-group", f"This instance belongs to {own}.")

    def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Return the caller. Raises Problem for a missing or wrong token, or a locked address."""
        authorization, address = headers.get("authorization", ""), (scope["client"] or ("", 0))[0]
        if authorization and self.tokens.is_needed:
            self._wrong_tokens.refuse(address)
        caller = self.tokens.caller(authorization)
        if caller is not None and caller.is_trusted:
            every = [
                (name.decode("latin-1"), text.decode("latin-1")) for name, text in scope["headers"]
            ]
            return self.tokens.user_of(caller, every, headers.get("sec-fetch-site", "none"))
        if caller is not None:
            return caller
        if authorization:
            log.warning("a wrong token came to the admin port", address=address)
            self._wrong_tokens.add(address)
        detail = "Send the header `Authorization: Bearer <token>` with a token of this proxy."
        raise Problem(401, "token-needed", detail, {"WWW-Authenticate": "Bearer"})

    async def _page(self, path: str) -> Response:
        if path != "/metrics":
            return PlainTextResponse(f"There is no such page.\n{INDEX}", 404)
        with room_in(self._free_scrapes, "Four other scrapes are running already. Try again."):
            metrics = await in_thread(partial(generate_latest, self._site.registry))
        return Response(metrics, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _refuse_unread(self, reply: Response, receive: Receive, send: Send) -> None:
        """Refuse a request before its body is read. Then read a part of the body, because some
        clients read no reply while they send."""
        start = {"type": "http.response.start", "status": reply.status_code}
        await send({**start, "headers": reply.raw_headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        with suppress(Problem, TimeoutError), room_in(self._free_discards, ""):
            async with asyncio.timeout(DISCARD_WITHIN_S):
                left, message = MOST_DISCARDED_BYTES, await receive()
                while left > 0 and message.get("more_body", False):
                    left -= len(message["body"])
                    message = await receive()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body_bytes(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise Problem(411, "length-required", "Send the body with its Content-Length.")
    length = headers.get("content-length", "0")
    if len(length) > MOST_DIGITS:
        raise bad_request("Content-Length is not a number.")
    if int(length) > MOST_BODY_BYTES:
        raise Problem(413, "too-large", f"A body has at most {MOST_BODY_BYTES} bytes.")
    return int(length)


def _replayed(body: bytes, receive: Receive) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay


async def _send_always(send: Send, always: Mapping[bytes, bytes], message: Message) -> None:
    if message["type"] == "http.response.start":
        names = {name.lower() for name, _ in message["headers"]}
        more = [(name, text) for name, text in always.items() if name not in names]
        message = {**message, "headers": [*message["headers"], *more]}
    await send(message)
