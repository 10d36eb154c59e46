"""A record of the dead-letter topic: where it lies, why, and what it was.

Its headers: docs/guide.md#what-does-not-arrive.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from proxy.dead_letters.letters.remedies import meaning, remedy
from proxy.protocol.body import Headers, Message
from proxy.protocol.headers import ERROR, ERROR_DETAIL, FIRST_ORIGIN, ORIGIN, TOPIC
from proxy.protocol.position import LAST_OFFSET

LAST_PARTITION: Final = 2**31 - 1
_PLACE: Final = re.compile(r"(\d{1,10})/(\d{1,19})", re.ASCII)
_ORIGIN: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,10})/(\d{1,19})", re.ASCII)


class Place(NamedTuple):
    """Where a letter lies in the dead-letter topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


class Origin(NamedTuple):
    """The ingress record that a letter was."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One record of the dead-letter topic, whole. Others may write there too: `is_ours` tells."""

    place: Place
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def is_ours(self) -> bool:
        """Whether the proxy has written it."""
        return any(name == ERROR for name, _ in self.headers)

    @property
    def reason(self) -> str | None:
        """The code of what went wrong; None in a record of somebody else."""
        return self.text(ERROR)

    @property
    def detail(self) -> str | None:
        return self.text(ERROR_DETAIL)

    @property
    def origin(self) -> Origin | None:
        """The ingress record that it was; None in a record of somebody else."""
        return read_origin(self.text(ORIGIN) or "")

    @property
    def first_origin(self) -> str | None:
        """The first of all origins, where the record has been sent in again before."""
        return self.text(FIRST_ORIGIN)

    @property
    def target(self) -> str | None:
        """The topic it asked for."""
        return self.text(TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Whether a value was left out, or there never was one: the original tells."""
        return self.value is None and self.is_ours

    @property
    def meaning(self) -> str:
        """What the reason says."""
        return meaning(self.reason or "")

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return remedy(self.reason or "")

    def text(self, name: str) -> str | None:
        """The last header of that name, as text."""
        raw = dict(self.headers).get(name)
        return None if raw is None else raw.decode("utf-8", "backslashreplace")


def letter_of(kind: type[Letter], message: Message) -> Letter:
    """The letter that a consumer got; its headers must be readable (`ingress.Fetched`)."""
    return kind(
        Place(message.partition(), message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def read_origin(text: str) -> Origin | None:
    """`topic/partition/offset`, or None when it is not one."""
    found = _ORIGIN.fullmatch(text)
    origin = Origin(found[1], int(found[2]), int(found[3])) if found else None
    is_one = origin and origin.partition <= LAST_PARTITION and origin.offset <= LAST_OFFSET
    return origin if is_one else None


def read_place(text: str) -> Place | Origin:
    """What a person names a letter by: its place in the topic, or its origin.

    Raises ValueError with a sentence.
    """
    if found := _PLACE.fullmatch(text):
        return Place(int(found[1]), int(found[2]))
    if origin := read_origin(text):
        return origin
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise ValueError(
        f"{shown!r} names no dead letter: write its place in the dead-letter topic, "
        "partition/offset (0/17), or its origin, topic/partition/offset (timer.ingress/2/4711)"
    )
