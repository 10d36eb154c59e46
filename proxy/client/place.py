"""What is read of any message that a consumer got: where it lies, and its headers."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import NamedTuple, cast

from confluent_kafka import Message

from proxy.client.request import WireHeaders

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


def place_of(message: Message) -> Place:
    """Where a message was read."""
    return Place(message.topic() or "", cast(int, message.partition()), cast(int, message.offset()))


def headers_of(message: Message) -> WireHeaders:
    """A message's headers. Raises UnreadableHeaders."""
    try:
        return _read_headers(message) or []
    except (SystemError, UnicodeDecodeError) as error:
        raise UnreadableHeaders(f"{place_of(message)}: a header's name is not UTF-8") from error
