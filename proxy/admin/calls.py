"""Common parts of all calls: the objects that they use, request parsing, and refusals."""

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import cleandoc, iscoroutinefunction
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import structlog
from fastapi import Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from starlette.requests import ClientDisconnect

from proxy.admin.answers import Answer
from proxy.admin.broker_access import BrokerAccess
from proxy.admin.changes import Change, ChangeRecorder, cut, is_dry_run
from proxy.admin.events import EventStreams, Snapshots
from proxy.admin.instances import gathered
from proxy.admin.models import (
    LAST_OFFSET,
    LAST_PARTITION,
    PATTERN,
    TOPIC,
    Refused,
    pattern_of,
)
from proxy.admin.peers import Peers
from proxy.admin.problem import Problem, bad_request
from proxy.admin.queries import MailboxFull, NoAnswer, Workers
from proxy.admin.replay_jobs import ReplayJobs
from proxy.admin.threads import in_thread, room_in
from proxy.admin.tokens import Caller
from proxy.admin.topic_readers import TopicReaders
from proxy.clock import wall_clock_ms
from proxy.config.settings import Role, Settings
from proxy.dead_letters.letter import Origin
from proxy.protocol.bounded_json import JsonRefused, read_json
from proxy.protocol.times import parse_instant_ms
from proxy.telemetry.status import Status

CALLS_AT_ONCE: Final = 4
CALLS_OF_PEERS_AT_ONCE: Final = 8
"""Calls from other instances have a limit of their own. With one shared limit, instances that ask
each other for whole-group answers could refuse each other's calls."""
READINGS_AT_ONCE: Final = 2
"""Limit of calls that read dead letters or changes, and a second limit of calls that trace."""
MOVES_AT_ONCE: Final = 1
RECORDED_WITHIN_S: Final = 1.0
"""A reply waits at most this long until the change is recorded. Without a broker the change is
recorded later, or only in the log."""
MOST_FIELDS: Final = 20
JSON_TYPE: Final = "application/json"
NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
WAIT: Final = re.compile(r"([12]?[0-9]|30)s")
MOST_RECORDS: Final = 1_000
NO_CURSOR: Final = (
    "it does not come from this call: send the cursor of the previous page, or none to start again"
)

log = structlog.get_logger(__name__)


class Site:
    """The objects that the calls of one admin port use.

    `read_statuses` returns the status of each worker."""

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        read_statuses: Callable[[], Sequence[Status]],
        workers: Workers,
        broker: BrokerAccess,
        topics: TopicReaders,
    ) -> None:
        self.settings, self.registry, self.read_statuses = settings, registry, read_statuses
        self.workers, self.broker, self.topics = workers, broker, topics
        self.level = settings.log.level
        self.changes = ChangeRecorder(broker)
        self.replays = ReplayJobs(topics.replay)
        self.peers = Peers(settings, broker)
        snapshots = Snapshots(registry, read_statuses, workers)
        self.events = EventStreams(
            lambda: snapshots.make(wall_clock_ms()), partial(gathered, settings, self.peers)
        )
        self.free_calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self.free_calls_of_peers = threading.BoundedSemaphore(CALLS_OF_PEERS_AT_ONCE)
        self.free_readings = threading.BoundedSemaphore(READINGS_AT_ONCE)
        self.free_traces = threading.BoundedSemaphore(READINGS_AT_ONCE)
        self.free_moves = threading.BoundedSemaphore(MOVES_AT_ONCE)


def json_reply(code: int, answer: Answer, headers: dict[str, str] | None = None) -> Response:
    """Return the answer as JSON, without the fields that were not set."""
    text = answer.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(f"{text}\n".encode(), code, headers, JSON_TYPE)


def refusal_of(error: Exception, path: str) -> Response:
    """Return the reply to a failed request."""
    match error:
        case Problem():
            problem = error
        case RequestValidationError():
            first = error.errors()[0]
            kind, *names = map(str, first["loc"])
            where = ".".join(names) if kind == "body" else f"`{names[0]}`"
            why = first["msg"].removeprefix("Value error, ").removesuffix(".")
            if kind == "query" and first["type"] == "missing":
                why = "name it in the query"
            problem = bad_request(f"{where or 'The body'}: {why}.")
        case MailboxFull():
            problem = Problem(503, "busy", "Too many queries are queued for a worker. Try again.")
        case NoAnswer():
            why = f" ({error})" if str(error) else ""
            detail = (
                f"A worker did not answer in time: it starts, recovers or is busy{why}. Try again."
            )
            problem = Problem(503, "no-answer", detail)
        case _:
            log.error("a call of the admin API went wrong", path=path, exc_info=error)
            problem = Problem(
                500, "defect", "This is a defect of the proxy. Its log has the details."
            )
    refused = Refused(error=problem.error, detail=problem.detail)
    return json_reply(problem.code, refused, dict(problem.headers))


class CallRoute(APIRoute):
    """A call with strict checks. A function that is not async runs in a thread.

    The function's docstring goes to the OpenAPI document."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.least_role: Role = vars(endpoint)["least_role"]
        self.of_group: Any = vars(endpoint).get("of_group")
        summary, _, text = cleandoc(endpoint.__doc__ or "").partition("\n\n")
        options["summary"] = summary
        options["description"] = (
            f"{' '.join(text.split())}\n\nLeast role: `{self.least_role}`.".strip()
        )
        name = endpoint.__name__.title().replace("_", "")
        options["operation_id"] = name[0].lower() + name[1:]
        answer = endpoint.__annotations__.get("return")
        if isinstance(answer, type) and issubclass(answer, Answer):
            options["response_description"] = " ".join((answer.__doc__ or "").split())
            if answer.later:
                accepted = {"model": answer, "description": answer.later}
                options["responses"] = {202: accepted, **(options.get("responses") or {})}
        super().__init__(path, _answered_in_thread(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Any]:
        answer = super().get_route_handler()
        known = [parameter.alias for parameter in self.dependant.query_params]

        async def reply_to(request: Request) -> Response:
            try:
                request.state.caller.refuse_below(self.least_role)
                check_query(request.url.query, known)
                if self.body_field is not None:
                    _check_json(request.headers.get("content-type", ""), await request.body())
                site, is_alone = request.state.site, request.state.is_alone
                free = site.free_calls_of_peers if is_alone else site.free_calls
                with room_in(free, "Too many other calls are running already. Try again."):
                    own = await _reply(answer, request)
                    if self.of_group is None or is_alone:
                        return own
                    body = await request.body()
                    return await in_thread(partial(self.of_group.answer, request, own, body))
            except ClientDisconnect:
                raise
            except Exception as error:  # noqa: BLE001 (a defect is logged)
                return refusal_of(error, request.url.path)

        async def handle(request: Request) -> Response:
            # The body is read before the call, because the client may be gone after the call.
            body = await request.body() if self.is_change else b""
            reply = await reply_to(request)
            is_elsewhere = request.state.is_alone and reply.status_code == 404
            if self.is_change and not (is_elsewhere or is_dry_run(body, reply.status_code)):
                change = _change_of(request, body, reply)
                written = in_thread(partial(request.state.site.changes.record, change))
                await asyncio.wait([asyncio.ensure_future(written)], timeout=RECORDED_WITHIN_S)
            return reply

        return handle

    @property
    def is_change(self) -> bool:
        return "GET" not in (self.methods or ())


async def _reply(answer: Callable[[Request], Any], request: Request) -> Response:
    """Return the reply of this instance. An error becomes a refusal."""
    try:
        return await answer(request)  # type: ignore[no-any-return]
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001 (a defect is logged)
        return refusal_of(error, request.url.path)


def _change_of(request: Request, body: bytes, reply: Response) -> Change:
    site, caller, query = request.state.site, request.state.caller, request.url.query
    path = request.url.path + (f"?{query}" if query else "")
    return Change(
        at=wall_clock_ms(),
        caller=caller.name,
        role=caller.role,
        address=request.client.host if request.client else "",
        instance=site.settings.instance_name,
        call=cut(f"{request.method} {path}"),
        body=cut(body.decode("utf-8", "replace")),
        status=reply.status_code,
        result=cut(bytes(reply.body).decode("utf-8", "replace").rstrip()),
        left_out=0,
    )


def _answered_in_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(call):
        return call

    @wraps(call)
    async def answer(**arguments: Any) -> Response:
        found: Answer = await in_thread(partial(call, **arguments))
        return json_reply(found.status_code(), found)

    return answer


def check_query(text: str, known: Sequence[str]) -> None:
    """Raise Problem if the query has unknown or repeated names, or is not UTF-8."""
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        raise bad_request("The query is not a list of name=value in UTF-8.") from None
    names = [name for name, _ in pairs]
    for name in names:
        if name not in known:
            taken = ", ".join(known) or "none"
            raise bad_request(f"The query has the unknown name {name!r}. Known names: {taken}.")
        if names.count(name) > 1:
            raise bad_request(f"The query has {name!r} twice. Send it once.")


def _check_json(content_type: str, body: bytes) -> None:
    if content_type.partition(";")[0].strip().lower() != JSON_TYPE:
        raise Problem(415, "unsupported-type", f"Send the body as `Content-Type: {JSON_TYPE}`.")
    try:
        read_json(body)
    except JsonRefused as refused:
        raise bad_request(f"The body is not valid JSON: {refused}.") from None


def _part_of_path(raw: str) -> str:
    """Decode a part of the path. The path is split before it is decoded, so %2F is no separator."""
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def _number_in_path(raw: str) -> int:
    if NUMBER.fullmatch(text := _part_of_path(raw)) is None:
        raise ValueError("write the place of a record as topic/partition/offset")
    return int(text)


def fitting(form: re.Pattern[str], otherwise: str) -> BeforeValidator:
    """Return a check of a parameter. `otherwise` tells the caller what to write instead."""

    def check(text: str) -> str:
        if form.fullmatch(text) is None:
            raise ValueError(otherwise)
        return text

    return BeforeValidator(check)


def number_upto(most: int) -> BeforeValidator:
    """Return the reader of a parameter that is a number from 1 to `most`."""

    def read(text: str) -> int:
        if NUMBER.fullmatch(text) is None or not 1 <= int(text) <= most:
            raise ValueError(f"write a number from 1 to {most}")
        return int(text)

    return BeforeValidator(read)


async def _site_of(request: Request) -> Site:
    return request.state.site  # type: ignore[no-any-return]


async def _caller_of(request: Request) -> Caller:
    return request.state.caller  # type: ignore[no-any-return]


async def _place_of(
    topic: Annotated[
        str,
        BeforeValidator(_part_of_path),
        Path(json_schema_extra={"pattern": TOPIC}, examples=["timer.ingress"]),
    ],
    partition: Annotated[
        int, Field(ge=0, le=LAST_PARTITION), BeforeValidator(_number_in_path), Path(examples=[0])
    ],
    offset: Annotated[
        int, Field(ge=0, le=LAST_OFFSET), BeforeValidator(_number_in_path), Path(examples=[42])
    ],
) -> Origin:
    return Origin(topic, partition, offset)


SiteOf = Annotated[Site, Depends(_site_of)]
CallerOf = Annotated[Caller, Depends(_caller_of)]
Place = Annotated[Origin, Depends(_place_of)]
PatternPart = Annotated[
    str,
    BeforeValidator(_part_of_path),
    AfterValidator(pattern_of),
    Path(
        description="A shell pattern of topic names.",
        json_schema_extra={"pattern": PATTERN},
        examples=["orders-*"],
    ),
]
Wait = Annotated[
    int,
    BeforeValidator(lambda text: text[:-1]),
    fitting(WAIT, "write a number of seconds from 0s to 30s"),
    WithJsonSchema({"type": "string", "pattern": f"^{WAIT.pattern}$", "examples": ["5s"]}),
    Query(description="How long to wait, at most 30s."),
]
Limit = Annotated[
    int,
    number_upto(MOST_RECORDS),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_RECORDS}),
]
Instant = Annotated[
    int | None,
    BeforeValidator(parse_instant_ms),
    WithJsonSchema(
        {"type": "string", "anyOf": [{"pattern": "^[0-9]{1,15}$"}, {"format": "date-time"}]}
    ),
]
PatternQuery = Annotated[
    str | None, BeforeValidator(pattern_of), WithJsonSchema({"type": "string", "pattern": PATTERN})
]
REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "model": Refused,
        "description": "400: bad request. 401: the token is missing or wrong. 403: `role-needed`, "
        "`contents-needed`, `user-needed`, `foreign-page`, or `closed`: no token is set. 404: not "
        "found. 405: wrong method. 409: "
        "not possible now, `detail` says why. 411: no Content-Length. 413: the body has more than "
        "64 KiB. 415: not JSON. 429: too many wrong tokens. 503: try again. `busy`: too many calls "
        "run already. `no-answer`: a worker does not answer within 2 s, because it starts, "
        "recovers or waits for the broker.",
    }
}
