"""Common parts of all calls: their site, request parsing, and refusals."""

import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import cleandoc, iscoroutinefunction
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import structlog
from fastapi import Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import ClientDisconnect

from proxy.admin.broker_access import BrokerAccess
from proxy.admin.events import EventStreams, Snapshots
from proxy.admin.models import PATTERN, TOPIC, Answer, Refused
from proxy.admin.problem import Problem, bad_request
from proxy.admin.query_mailbox import MailboxFull, NoAnswer
from proxy.admin.replay_jobs import ReplayJobs
from proxy.admin.threads import in_thread, room_in
from proxy.admin.topic_readers import KafkaLetters, KafkaTraces
from proxy.admin.workers import Workers
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin
from proxy.logs import Level
from proxy.protocol.bounded_json import JsonRefused, read_json
from proxy.protocol.times import parse_instant_ms
from proxy.telemetry.status import Status

CALLS_AT_ONCE: Final = 4
READINGS_AT_ONCE: Final = 2
"""For dead letters and for traces each, so that other calls have room."""
MOST_FIELDS: Final = 20
JSON_TYPE: Final = "application/json"
PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
LAST_PARTITION: Final = 2**31 - 1
OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,17}")
SPAN: Final = re.compile(r"[0-9]{1,6}(ms|s|m|h|d)")
WAIT: Final = re.compile(r"([12]?[0-9]|30)s")
LIMIT: Final = re.compile(r"[1-9][0-9]{0,3}")
MOST_RECORDS: Final = 1_000

log = structlog.get_logger(__name__)


@dataclass
class Site:
    """The objects that the calls of one admin port use."""

    settings: Settings
    registry: CollectorRegistry
    read_statuses: Callable[[], Sequence[Status]]
    """One `Status` per worker."""
    workers: Workers
    broker: BrokerAccess
    letters: KafkaLetters
    traces: KafkaTraces
    level: Level = field(init=False)
    replays: ReplayJobs = field(init=False)
    events: EventStreams = field(init=False)
    free_calls: threading.BoundedSemaphore = field(init=False)
    free_readings: threading.BoundedSemaphore = field(init=False)
    free_traces: threading.BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        self.free_calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self.free_readings = threading.BoundedSemaphore(READINGS_AT_ONCE)
        self.free_traces = threading.BoundedSemaphore(READINGS_AT_ONCE)
        self.level = self.settings.log.level
        self.replays = ReplayJobs(self.letters.replay, wall_clock_ms)
        snapshots = Snapshots(self.registry, self.read_statuses, self.workers)
        self.events = EventStreams(lambda: snapshots.make(wall_clock_ms()))


def json_reply(code: int, answer: Answer, headers: dict[str, str] | None = None) -> Response:
    """Return the answer as JSON, without the fields that were not set."""
    text = answer.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(f"{text}\n".encode(), code, headers, JSON_TYPE)


def refusal_of(error: Exception, path: str) -> Response:
    """Return the reply to a failed request."""
    problem = _problem_of(error, path)
    refused = Refused(error=problem.error, detail=problem.detail)
    return json_reply(problem.code, refused, dict(problem.headers))


def _problem_of(error: Exception, path: str) -> Problem:
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _unreadable(error)
        case MailboxFull():
            return Problem(503, "busy", "Too many questions wait for a worker; try again.")
        case NoAnswer():
            why = f" ({error})" if str(error) else ""
            detail = f"A worker has not answered in time: it starts or recovers; try again{why}."
            return Problem(503, "no-answer", detail)
    log.error("a call of the admin API went wrong", path=path, exc_info=error)
    return Problem(500, "defect", "This is a defect of the proxy; its log says more.")


def _unreadable(error: RequestValidationError) -> Problem:
    first = error.errors()[0]
    kind, *where = first["loc"]
    if kind != "body":
        return bad_request(f"Name the `{where[0]}` in the query.")
    return bad_request(f"{'.'.join(map(str, where)) or 'The body'}: {first['msg']}.")


class CallRoute(APIRoute):
    """A strictly checked call, run in a thread. Its docstring goes to the OpenAPI document."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        summary, _, text = cleandoc(endpoint.__doc__ or "").partition("\n\n")
        options["summary"], options["description"] = summary, " ".join(text.split()) or None
        options["operation_id"] = _camel_case(endpoint.__name__)
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

        async def handle(request: Request) -> Response:
            try:
                check_query(request.url.query, known)
                if self.body_field is not None:
                    _check_json(request.headers.get("content-type", ""), await request.body())
                site: Site = request.state.site
                with room_in(site.free_calls, "Other calls are waited for; try again."):
                    return await answer(request)
            except ClientDisconnect:
                raise
            except Exception as error:  # noqa: BLE001 (a defect is logged)
                return refusal_of(error, request.url.path)

        return handle


def _answered_in_thread(call: Callable[..., Any]) -> Callable[..., Awaitable[Response]]:
    if iscoroutinefunction(call):
        return call

    @wraps(call)
    async def answer(**arguments: Any) -> Response:
        found: Answer = await in_thread(partial(call, **arguments))
        return json_reply(found.status_code(), found)

    return answer


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def check_query(text: str, known: Sequence[str]) -> None:
    """Raise Problem for unknown or repeated names, or text that is not UTF-8."""
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
            raise bad_request(f"The query names {name!r}; known here: {taken}.")
        if names.count(name) > 1:
            raise bad_request(f"The query names {name!r} twice.")


def _check_json(content_type: str, body: bytes) -> None:
    if content_type.partition(";")[0].strip().lower() != JSON_TYPE:
        raise Problem(415, "unsupported-type", f"Send the body as `Content-Type: {JSON_TYPE}`.")
    try:
        read_json(body)
    except JsonRefused as refused:
        raise bad_request(f"The body is no JSON that is read here: {refused}.") from None


def part_of_path(raw: str) -> str:
    """Decode a part of the path. It is percent-encoded until here, so %2F is no separator."""
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("A part of the path is not UTF-8.") from None


def _number_of(raw: str, form: re.Pattern[str], most: int) -> int:
    text = part_of_path(raw)
    if form.fullmatch(text) is None or int(text) > most:
        raise bad_request("A record lies at topic/partition/offset.")
    return int(text)


def wait_s_of(text: str) -> int:
    """Parse `wait` in seconds. Raises Problem."""
    if WAIT.fullmatch(text) is None:
        raise bad_request("`wait` is a number of seconds from 0s to 30s.")
    return int(text[:-1])


def limit_of(text: str) -> int:
    """Parse the size of a page. Raises Problem."""
    if LIMIT.fullmatch(text) is None or int(text) > MOST_RECORDS:
        raise bad_request(f"`limit` is a number from 1 to {MOST_RECORDS}.")
    return int(text)


def instant_ms(name: str, text: str) -> int:
    """Parse a time of the query. Raises Problem."""
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise bad_request(f"`{name}`: {error}.") from None


async def _site_of(request: Request) -> Site:
    return request.state.site  # type: ignore[no-any-return]


_MOST_OFFSET: Final = 10**18 - 1
_TopicPart = Annotated[
    str,
    BeforeValidator(part_of_path),
    Path(json_schema_extra={"pattern": TOPIC}, examples=["timer.ingress"]),
]
_PartitionPart = Annotated[
    int,
    BeforeValidator(partial(_number_of, form=PARTITION, most=LAST_PARTITION)),
    Path(json_schema_extra={"minimum": 0, "maximum": LAST_PARTITION}, examples=[0]),
]
_OffsetPart = Annotated[
    int,
    BeforeValidator(partial(_number_of, form=OFFSET, most=_MOST_OFFSET)),
    Path(json_schema_extra={"minimum": 0, "maximum": _MOST_OFFSET}, examples=[42]),
]


async def _place_of(topic: _TopicPart, partition: _PartitionPart, offset: _OffsetPart) -> Origin:
    return Origin(topic, partition, offset)


SiteOf = Annotated[Site, Depends(_site_of)]
Place = Annotated[Origin, Depends(_place_of)]
PatternPart = Annotated[
    str,
    BeforeValidator(part_of_path),
    Path(
        description="A shell pattern of topic names.",
        json_schema_extra={"pattern": PATTERN},
        examples=["orders-*"],
    ),
]
Wait = Annotated[
    str,
    Query(
        description="How long to wait, at most 30s.",
        json_schema_extra={"pattern": f"^{WAIT.pattern}$"},
        examples=["5s"],
    ),
]
Limit = Annotated[
    str,
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_RECORDS, "default": 100}),
]
Instant = Annotated[
    str | None,
    WithJsonSchema(
        {"type": "string", "anyOf": [{"pattern": "^[0-9]{1,15}$"}, {"format": "date-time"}]}
    ),
]
PatternQuery = Annotated[str | None, WithJsonSchema({"type": "string", "pattern": PATTERN})]
REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "model": Refused,
        "description": "400 a bad request, 401 without the token, 403 closed without a token, "
        "404 nothing there, 405 wrong method, 409 not as things are (the detail says why), 411 no "
        "Content-Length, 413 too large a body, 415 not JSON, 503 try again.",
    }
}
