"""What is read of any message that a consumer got: where it lies, and its headers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

from confluent_kafka import Message

from proxy.client.request import WireHeaders
from proxy.protocol.headers import read_headers

Partition: TypeAlias = tuple[str, int]
"""(topic, partition)."""


class UnreadableHeaders(Exception):
    """A header's name is not UTF-8: the client library cannot give any of the record's headers."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> Partition:
        """The partition that it lies in."""
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def place_of(message: Message) -> Place:
    """Where a message was read."""
    return Place(message.topic() or "", cast(int, message.partition()), cast(int, message.offset()))


def headers_of(message: Message) -> WireHeaders:
    """A message's headers. Raises UnreadableHeaders."""
    try:
        headers: WireHeaders | None = read_headers(message)
        return headers or []
    except (SystemError, UnicodeDecodeError) as error:
        raise UnreadableHeaders(f"{place_of(message)}: a header's name is not UTF-8") from error
