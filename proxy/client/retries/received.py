"""A record as a handler gets it, with the story of its retries (plain `retry-` headers)."""

from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from proxy.client.place import Place, headers_of, place_of
from proxy.client.request import WireHeaders

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
ATTEMPT: Final = "retry-attempt"
EXCEPTION: Final = "retry-exception"
STORY: Final = (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ATTEMPT, EXCEPTION)
MOST_DIGITS: Final = 18


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

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.key or b"") + len(self.value or b"")

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


def _original(story: dict[str, bytes | None]) -> Place | None:
    topic = story.get(ORIGINAL_TOPIC)
    partition = _number(story.get(ORIGINAL_PARTITION))
    offset = _number(story.get(ORIGINAL_OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    return Place(topic.decode("utf-8", "replace"), partition, offset)


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else None
