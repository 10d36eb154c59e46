"""When a record should appear: what a caller may say, and the header that says it.

The rules: docs/guide.md#when.
A number without a unit is refused. A fraction of a millisecond counts as a whole one: later is
allowed, early never.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from proxy.client.errors import RequestRefused
from proxy.protocol.headers import DELAY, DELIVER_AT, LEVEL
from proxy.protocol.times import MAX_DIGITS, parse_delay_ms, parse_instant_ms

Delay: TypeAlias = timedelta | str
"""A timedelta, or text with a unit such as `30s`, `500ms`, `2h`, `PT30S`."""
Instant: TypeAlias = datetime | int | str
"""An aware datetime, epoch milliseconds, or RFC 3339 text with a zone."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
TOO_LARGE: Final = 10**MAX_DIGITS
KNOWN_DELAYS: Final = 1_000
NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?", re.ASCII)
YEAR_MS: Final = 366 * 86_400_000


def time_headers(
    delay: Delay | None, deliver_at: Instant | None, level: int | None
) -> list[tuple[str, bytes]]:
    """The header that asks for the time, or none: at once. Raises RequestRefused."""
    given = {"delay": delay, "deliver_at": deliver_at, "level": level}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise RequestRefused(f"{' and '.join(named)} contradict each other: give one of them")
    if delay is not None:
        return [(DELAY, delay_text(delay, "delay").encode())]
    if deliver_at is not None:
        return [(DELIVER_AT, _instant_text(deliver_at).encode())]
    if level is not None:
        return [(LEVEL, str(_whole(level, "level", "a delay level from 0 (at once)")).encode())]
    return []


def delay_text(delay: object, name: str) -> str:
    """The delay as the protocol writes it; `name` is the argument to blame. Raises RequestRefused.

    Text is sent as it was given, so that the proxy's errors show the caller's own words.
    """
    if isinstance(delay, timedelta):
        delay_ms = -(-delay // MILLISECOND)
        return str(_whole(delay_ms, name, "a length of time, 0 or longer"))
    if isinstance(delay, str):
        return _readable(delay, name)
    _refuse_bare_number(delay, name)
    raise RequestRefused(f"{name} is {delay!r}: give a timedelta, or text such as '30s'")


@lru_cache(KNOWN_DELAYS)
def _readable(text: str, name: str) -> str:
    _refuse_bare_number(text, name)
    try:
        parse_delay_ms(text)
    except ValueError:
        raise RequestRefused(
            f"{name} is {text!r}: write a number with a unit (500ms 30s 5m 2h 7d), an ISO 8601 "
            "duration without years or months (PT30S), or give a timedelta"
        ) from None
    return text


def _refuse_bare_number(delay: object, name: str) -> None:
    """Milliseconds are what the protocol means by it, and seconds what most people do."""
    is_number = isinstance(delay, int | float) and not isinstance(delay, bool)
    if is_number or (isinstance(delay, str) and NUMBER.fullmatch(delay)):
        raise RequestRefused(
            f"{name} is {delay!r}, a number without a unit: write '{delay}s' for seconds or "
            f"'{delay}ms' for milliseconds, or give a timedelta"
        )


def _instant_text(moment: Instant) -> str:
    if isinstance(moment, datetime):
        return str(_epoch_ms(moment))
    if not isinstance(moment, str):
        wanted = "after 1970: an aware datetime, epoch milliseconds, or RFC 3339 text"
        return str(_refuse_long_past(_whole(moment, "deliver_at", wanted)))
    try:
        instant_ms = _whole(parse_instant_ms(moment), "deliver_at", "a time after 1970")
    except ValueError as error:
        raise RequestRefused(str(error).removeprefix("deliver_at: ")) from None
    if NUMBER.fullmatch(moment):
        _refuse_long_past(instant_ms)
    return moment


def _refuse_long_past(instant_ms: int) -> int:
    """Refuse a number that is a time more than a year ago: it may be meant as seconds."""
    if instant_ms < time.time() * 1000 - YEAR_MS:
        in_words = (EPOCH + timedelta(milliseconds=instant_ms)).isoformat(timespec="milliseconds")
        raise RequestRefused(
            f"deliver_at is {instant_ms}. In epoch milliseconds that is {in_words}, more than a "
            "year ago. If it means seconds, multiply it by 1000. For a time that long ago give an "
            "aware datetime, or RFC 3339 text"
        )
    return instant_ms


def _epoch_ms(moment: datetime) -> int:
    if moment.utcoffset() is None:
        raise RequestRefused(
            f"deliver_at is {moment!r}, a datetime without a zone, which would mean another time "
            "on another machine: write datetime.now(UTC) or moment.astimezone()"
        )
    return _whole(-(-(moment - EPOCH) // MILLISECOND), "deliver_at", "a time after 1970")


def _whole(number: object, name: str, wanted: str) -> int:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if is_whole and 0 <= number < TOO_LARGE:  # type: ignore[operator]
        return number  # type: ignore[return-value]
    raise RequestRefused(f"{name} is {number!r}: it must be {wanted}")
