"""Reads headers of a fetched record, and header values as text that a sentence can show."""

from operator import methodcaller
from typing import Final, TypeVar

CACHE_ENTRIES: Final = 10_000
CACHED_BYTES: Final = 256
MOST_SHOWN_BYTES: Final = 244
"""More than 60 characters, however many bytes each has."""

T = TypeVar("T")

read_headers = methodcaller("headers")
"""Asks a message for its headers; fails where a header's name is not UTF-8. Not a plain call: the
interpreter's fast path for those lets the failure go unseen, to surface in whatever is called next.
"""


def text_of(raw: bytes | None) -> str:
    """What was written; bytes that are not UTF-8 as escapes."""
    return "" if raw is None else raw.decode("utf-8", "backslashreplace")


def shown(raw: bytes | None) -> str:
    """What was written, in quotes, cut where it is long."""
    text = text_of(None if raw is None else raw[:MOST_SHOWN_BYTES])
    return "null" if raw is None else repr(text if len(text) <= 60 else text[:57] + "...")


def remember(cache: dict[bytes | None, T], raw: bytes | None, answer: T) -> None:
    """A bounded cache: full, it starts anew, and the next records fill it with what is in use."""
    if len(cache) >= CACHE_ENTRIES:
        cache.clear()
    if raw is None or len(raw) <= CACHED_BYTES:
        cache[raw] = answer
