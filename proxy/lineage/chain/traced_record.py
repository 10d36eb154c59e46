"""Records as a trace reads them, and what it asks of the topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from proxy.dead_letters.letters.letter import Origin
from proxy.errors import ProxyError
from proxy.protocol.body import Headers, last_header
from proxy.protocol.headers import text_of


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A committed record of any topic, and where it lies."""

    place: Origin
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return last_header(self.headers, name)

    def text(self, name: str) -> str | None:
        """The same as text."""
        raw = self.header(name)
        return None if raw is None else text_of(raw)

    def number(self, name: str) -> int | None:
        """The same as a number; None, too, where it is none that the proxy or a client writes."""
        raw = self.header(name)
        return int(raw) if raw is not None and raw.isdigit() and len(raw) <= 18 else None

    def without_value(self) -> Self:
        """To be kept: a trace may pass a thousand records, and a value can be large."""
        return replace(self, value=None)


class TimeSpan(NamedTuple):
    """Records of a topic by their timestamps; None: from the first on, to the last that is there.

    `until_ms` is left out. `partitions` None: all.
    """

    topic: str
    from_ms: int | None = None
    until_ms: int | None = None
    partitions: tuple[int, ...] | None = None


Visit = Callable[[TracedRecord], bool]
"""Looks at a record; True: no more need be read."""


class NotAllRead(ProxyError):
    """Not all was read within the `bound`, of time or of records; `topics` are those that were
    being read."""

    def __init__(self, topics: Sequence[str], bound: str) -> None:
        self.topics = tuple(topics)
        super().__init__(f"{bound} before {', '.join(topics)} had been read.")


class Topics(Protocol):
    """What lies in the topics. Raises NotAllRead, and what the broker refuses as a ProxyError."""

    def partitions_of(self, topic: str) -> int:
        """How many the topic has; 0 when it does not exist."""

    def offsets(self, topic: str, partition: int) -> range:
        """From the first offset still there to the end of what is committed."""

    def at(self, place: Origin) -> TracedRecord | None:
        """The record at a place; None when nothing lies there (any more)."""

    def search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        """Read these, all at once, until `visit` is content or each has come to its end. A record
        can be seen twice where something is left out."""

    def unread(self) -> list[str]:
        """What was left out so far, in sentences."""
