"""Header values as text, for reading and for showing in a sentence."""

from __future__ import annotations

from typing import Final, TypeVar

CACHE_ENTRIES: Final = 10_000
CACHED_BYTES: Final = 256

T = TypeVar("T")


def text_of(raw: bytes | None) -> str:
    """What was written; bytes that are not UTF-8 as escapes."""
    return "" if raw is None else raw.decode("utf-8", "backslashreplace")


def shown(raw: bytes | None) -> str:
    """What was written, in quotes, cut where it is long."""
    text = text_of(raw)
    return "null" if raw is None else repr(text if len(text) <= 60 else text[:57] + "...")


def remember(cache: dict[bytes | None, T], raw: bytes | None, answer: T) -> None:
    """A bounded cache: full, it starts anew, and the next records fill it with what is in use."""
    if len(cache) >= CACHE_ENTRIES:
        cache.clear()
    if raw is None or len(raw) <= CACHED_BYTES:
        cache[raw] = answer
