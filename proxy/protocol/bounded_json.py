"""The only reader of JSON from outside: topics, offset metadata and HTTP.

Size, depth and numbers are bounded before decoding, so no text can end a process.
"""

import json
import re
from math import isfinite
from typing import Any, Final

MOST_BYTES: Final = 1 << 20
"""Brokers' default limit for a record."""
MOST_DEPTH: Final = 32
LARGEST: Final = 2**63 - 1
MOST_DIGITS: Final = len(str(LARGEST))
STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
BRACKET: Final = re.compile(r"[\[{\]}]")
SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class JsonRefused(ValueError):
    """The text is not JSON, or exceeds a limit. The message says which."""


def read_json(text: str | bytes | None, most_bytes: int = MOST_BYTES) -> Any:
    """Decode JSON within bounds.

    Raises JsonRefused for size, depth, bad UTF-8, NaN, Infinity, numbers beyond 64 bits, duplicate
    names and lone surrogates.
    """
    if text is None:
        raise JsonRefused("there is no text")
    if len(text) > most_bytes:
        raise JsonRefused(f"it has {len(text):,} bytes, and at most {most_bytes:,} are read")
    try:
        plain = text if isinstance(text, str) else text.decode()
        _check_depth(plain)
        found = _DECODER.decode(plain)
        if SURROGATE.search(plain):
            _ENCODER.encode(found).encode()
    except ValueError as error:
        raise JsonRefused(_cut(str(error))) from None
    return found


def read_object(text: str | bytes | None, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Decode a JSON object. Raises JsonRefused."""
    found = read_json(text, most_bytes)
    if not isinstance(found, dict):
        raise JsonRefused("it is no object")
    return found


def whole(value: object) -> int:
    """Return a whole number. Raises JsonRefused for other values."""
    if type(value) is not int:
        raise JsonRefused(f"{_cut(str(value), 60)!r} is no whole number")
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    depth = 0
    for bracket in BRACKET.findall(STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MOST_DEPTH:
            raise JsonRefused(f"it is nested deeper than {MOST_DEPTH}")


def _64_bits(digits: str) -> int:
    if len(digits) <= MOST_DIGITS + 1 and abs(number := int(digits)) <= LARGEST:
        return number
    raise JsonRefused(f"the number {_cut(digits, 30)} has more than 64 bits")


def _fraction(digits: str) -> float:
    if isfinite(number := float(digits)):
        return number
    raise JsonRefused(f"the number {_cut(digits, 30)} is too large")


def _constant(name: str) -> None:
    raise JsonRefused(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise JsonRefused("it has a name twice in one object")
    return found


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


_DECODER: Final = json.JSONDecoder(
    parse_int=_64_bits, parse_float=_fraction, parse_constant=_constant, object_pairs_hook=_once
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
