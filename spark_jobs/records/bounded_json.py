"""A JSON reader with bounds, for topics and offset metadata, on the driver.
The audit shares no reader with the proxy.
"""

import json
import re
from typing import Any, Final, TypeVar

MOST_BYTES: Final = 1 << 20
MOST_DEPTH: Final = 32
MOST_DIGITS: Final = 19
STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
BRACKET: Final = re.compile(r"[\[{\]}]")

T = TypeVar("T")


class JsonRefused(ValueError):
    """The text is no JSON, or exceeds a limit that the message names."""


def read_json(text: str | bytes | None, kind: type[T]) -> T:
    """Return the object or list in the text. Raises JsonRefused.
    Refuse texts over 1 MiB, nesting deeper than 32, and bytes that are not UTF-8. Refuse NaN,
    Infinity, whole numbers over 64 bits, a repeated name in an object, and values of another kind.
    """
    if text is None or len(text) > MOST_BYTES:
        raise JsonRefused(f"it has no text, or more than {MOST_BYTES} bytes")
    try:
        plain = text if isinstance(text, str) else text.decode()
        if _depth(plain) > MOST_DEPTH:
            raise JsonRefused(f"it is nested deeper than {MOST_DEPTH}")
        found: Any = json.loads(
            plain, parse_int=_64_bits, parse_constant=_constant, object_pairs_hook=_object
        )
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise JsonRefused(str(error)[:200]) from None
    if not isinstance(found, kind):
        raise JsonRefused(f"it is no {kind.__name__}")
    return found


def whole(value: object) -> int:
    """Return a value that is a whole number. Raises ValueError."""
    if type(value) is not int:
        raise ValueError(f"{str(value)[:60]!r} is no whole number")
    return value


def _depth(text: str) -> int:
    deepest = depth = 0
    for bracket in BRACKET.findall(STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _64_bits(digits: str) -> int:
    number = int(digits) if len(digits) <= MOST_DIGITS + 1 else 2**64
    if not -(2**63) <= number < 2**63:
        raise JsonRefused("it has a whole number of more than 64 bits")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonRefused("an object has a name twice")
    return found


def _constant(name: str) -> None:
    raise JsonRefused(f"{name} is no number of JSON")
