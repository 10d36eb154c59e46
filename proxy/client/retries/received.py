"""A record as a handler gets it, with the story of its retries (plain `retry-` headers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Final, NamedTuple, cast

from confluent_kafka import Message

from proxy.client.request import WireHeaders

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
ATTEMPT: Final = "retry-attempt"
EXCEPTION: Final = "retry-exception"
STORY: Final = (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ATTEMPT, EXCEPTION)
MOST_DIGITS: Final = 18


_read_headers: Callable[[Message], WireHeaders | None] = methodcaller("headers")
"""Not a plain call: the interpreter's fast path for those lets the client library's failure go
unseen, to surface in whatever is called next."""


class UnreadableHeaders(Exception):
    """A header's name is not UTF-8: the client library cannot give any of the record's headers."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Received:
    """A record to be handled.

    `original` is where it first came from, `read_from` where it was read: they differ once it has
    been retried. `attempt` counts the failures so far, 0 at first. `headers` are all it carries.
    """

    read_from: Place
    original: Place
    attempt: int
    key: bytes | None
    value: bytes | None
    headers: WireHeaders
    timestamp_ms: int

    @property
    def topic(self) -> str:
        """The topic it first came from, also when it comes from the retry topic."""
        return self.original.topic

    def header(self, name: str) -> bytes | None:
        """The last header of that name, None without one."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def received(message: Message, retry_topic: str) -> Received:
    """The record in a message. Only the retry topic's records are believed what they say of
    retries: elsewhere the headers are another group's story.

    Raises UnreadableHeaders.
    """
    read_from = place_of(message)
    headers = headers_of(message)
    story = dict(headers) if read_from.topic == retry_topic else {}
    return Received(
        read_from,
        _original(story) or read_from,
        _number(story.get(ATTEMPT)) or 0,
        message.key(),
        message.value(),
        headers,
        message.timestamp()[1],
    )


def place_of(message: Message) -> Place:
    """Where a message was read."""
    return Place(message.topic() or "", cast(int, message.partition()), cast(int, message.offset()))


def headers_of(message: Message) -> WireHeaders:
    """A message's headers. Raises UnreadableHeaders."""
    try:
        return _read_headers(message) or []
    except (SystemError, UnicodeDecodeError) as error:
        raise UnreadableHeaders(f"{place_of(message)}: a header's name is not UTF-8") from error


def _original(story: dict[str, bytes | None]) -> Place | None:
    topic = story.get(ORIGINAL_TOPIC)
    partition = _number(story.get(ORIGINAL_PARTITION))
    offset = _number(story.get(ORIGINAL_OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    return Place(topic.decode("utf-8", "replace"), partition, offset)


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else None
