"""A request to the admin port and the reply to it, without sockets."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

MOST_BODY_BYTES = 65_536
JSON_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"
"""Such a reply has no end of its own."""
MOST_FIELDS = 20

Headers = tuple[tuple[str, str], ...]


class Reply(NamedTuple):
    """Status code, content type, body, and further headers."""

    code: int
    content_type: str
    body: bytes
    headers: Headers = ()


class Problem(Exception):
    """A request that is refused: the status code, a code word for programs, a sentence."""

    def __init__(self, code: int, error: str, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.reply = problem(code, error, detail, headers)


class Request(NamedTuple):
    """What a client has sent; `headers` by lower-case name."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path as it was written, without the query."""
        return self.url.partition("?")[0]

    def query(self, *known: str) -> dict[str, str]:
        """The query by name. Raises Problem for unknown and repeated names, or bad UTF-8."""
        try:
            text = urlsplit(self.url).query
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
        return dict(pairs)

    def json(self) -> bytes:
        """The body, which has to be said to be JSON. Raises Problem."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise Problem(415, "unsupported-type", f"Send the body as `Content-Type: {JSON_TYPE}`.")
        return self.body


def part_of_path(raw: str) -> str:
    """A part of the path as text. Raises Problem where it is not UTF-8."""
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("A part of the path is not UTF-8.") from None


def bad_request(detail: str) -> Problem:
    """Something in the request cannot be read."""
    return Problem(400, "bad-request", detail)


def problem(code: int, error: str, detail: str, headers: Headers = ()) -> Reply:
    """A refusal."""
    return as_json(code, {"error": error, "detail": detail})._replace(headers=headers)


def as_text(code: int, text: str) -> Reply:
    """A reply for people."""
    return Reply(code, "text/plain; charset=utf-8", text.encode())


def as_json(code: int, value: Mapping[str, Any]) -> Reply:
    """A reply for programs."""
    return Reply(code, JSON_TYPE, json.dumps(value).encode() + b"\n")
