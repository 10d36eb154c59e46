"""A record as a handler gets it, with the story of its retries (plain `retry-` headers)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from proxy.client.place import Place, headers_of, place_of
from proxy.client.request import WireHeaders
from proxy.client.retries.signer import SIGNATURE, Signer

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
ATTEMPT: Final = "retry-attempt"
EXCEPTION: Final = "retry-exception"
STORY: Final = (
    *(ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET),
    *(ATTEMPT, EXCEPTION, SIGNATURE),
)
MOST_DIGITS: Final = 18
BY_PATTERN: Final = "^"
"""How a topic begins that librdkafka takes as a regular expression."""


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


class NotBelieved(Exception):
    """A record of the retry topic tells a story that may be forged."""


class Believed:
    """Which stories of the retry topic's records are believed.

    A signed story is believed if the signature is right. An unsigned one is believed if it comes
    from a topic that the consumer reads; never where signatures are asked for.
    """

    def __init__(self, topics: Sequence[str], retry_topic: str, signer: Signer | None) -> None:
        self.retry_topic = retry_topic
        self._signer = signer
        self._topics = {*topics, retry_topic}
        self._patterns = [one for one in topics if one.startswith(BY_PATTERN)]

    def need(self, record: Received) -> None:
        """Raises NotBelieved. Records of other topics tell no story."""
        if record.read_from.topic != self.retry_topic:
            return
        signature = record.header(SIGNATURE)
        if self._signer is not None and signature is not None:
            self._need_signature(record, signature, self._signer)
        elif self._signer is not None and not self._signer.takes_unsigned:
            raise NotBelieved(
                "the retry is not signed, so it may be forged: this consumer has a signing_key"
            )
        elif not self._reads(record.topic):
            raise NotBelieved(
                f"the retry says that it came from {record.topic!r}, which this consumer does not "
                "read: it may be forged"
            )

    def _need_signature(self, record: Received, signature: bytes, signer: Signer) -> None:
        attempt = None if record.header(ATTEMPT) is None else record.attempt
        if not signer.is_valid(signature, record.original, attempt, record.key, record.value):
            raise NotBelieved("the signature of the retry is wrong, so it may be forged")

    def _reads(self, topic: str) -> bool:
        return topic in self._topics or any(_matches(one, topic) for one in self._patterns)


def _matches(pattern: str, topic: str) -> bool:
    """Whether librdkafka's expression names the topic. One that Python cannot read may name any."""
    try:
        return re.match(pattern, topic) is not None
    except re.error:
        return True


def received(message: Message, retry_topic: str) -> Received:
    """The record in a message. Only the retry topic's records may tell of retries: elsewhere the
    headers are another group's story. Whether they are believed: `Believed`.

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
