"""Readers of delays, instants and level tables (docs/guide.md#when).

They return milliseconds or raise ValueError with a sentence. Units are never guessed.
"""

import re
from datetime import datetime
from itertools import pairwise
from typing import Final

MILLISECONDS_PER: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
MAX_DIGITS: Final = 15
"""Digits of epoch ms up to the year 33,658. Longer numbers are mistakes."""
LATEST_MS: Final = 10**MAX_DIGITS - 1

_UNIT = re.compile(rf"([0-9]{{1,{MAX_DIGITS - 3}}})(ms|s|m|h|d)")
_ISO_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,6})W|(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,12})(?:[.,](?P<fraction>\d{1,9}))?S)?)?)",
    re.ASCII,
)
_RFC_3339 = re.compile(
    r"(?P<seconds>\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2})"
    r"(?:\.(?P<fraction>\d{1,9}))?(?P<zone>[Zz]|[+-]\d{2}:[0-5]\d)",
    re.ASCII,
)


def parse_delay_ms(text: str) -> int:
    """Parse a delay: `1500`, `500ms`, `30s`, `5m`, `2h`, `7d`, or ISO 8601 `PT30S`."""
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return int(text)
    if unit := _UNIT.fullmatch(text):
        return int(unit[1]) * MILLISECONDS_PER[unit[2]]
    iso = _ISO_DURATION.fullmatch(text)
    if iso and any(iso.groupdict().values()):
        return _iso_duration_ms(iso.groupdict(default="0"))
    raise ValueError(
        f"{_shown(text)} is not a delay: write milliseconds (1500), a number with a unit "
        "(500ms 30s 5m 2h 7d), or an ISO 8601 duration without years or months (PT30S)"
    )


def shown_delay(duration_ms: int) -> str:
    """Format a delay for `parse_delay_ms`, in the largest exact unit."""
    units = [unit for unit, length_ms in MILLISECONDS_PER.items() if duration_ms % length_ms == 0]
    return f"{duration_ms // MILLISECONDS_PER[units[-1]]}{units[-1]}"


def parse_instant_ms(text: str) -> int:
    """Parse epoch ms in digits, or RFC 3339 with a zone."""
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return int(text)
    if parts := _RFC_3339.fullmatch(text):
        zone = "+00:00" if parts["zone"] in "Zz" else parts["zone"]
        try:
            moment = datetime.fromisoformat(parts["seconds"].upper() + zone)
        except ValueError as error:
            raise ValueError(f"{_shown(text)} is not a time: {error}") from None
        return int(moment.timestamp()) * 1000 + _fraction_ms(parts["fraction"] or "0")
    raise ValueError(
        f"{_shown(text)} is not a time: write epoch milliseconds (1767258000000) or "
        "RFC 3339 with a zone (2026-01-01T09:00:00Z, 2026-01-01T10:00:00.250+01:00)"
    )


def parse_levels(text: str) -> tuple[int, ...]:
    """Parse a table of delays, level 1 first."""
    words = text.split()
    if not words:
        raise ValueError("the level table is empty: put blanks between delays (1s 5s 10s)")
    levels = tuple(parse_delay_ms(word) for word in words)
    if any(later < earlier for earlier, later in pairwise(levels)):
        raise ValueError(f"the level table {_shown(text)} is not in order: sort it by length")
    return levels


def _iso_duration_ms(parts: dict[str, str]) -> int:
    days = int(parts["weeks"]) * 7 + int(parts["days"])
    seconds = int(parts["hours"]) * 3600 + int(parts["minutes"]) * 60 + int(parts["seconds"])
    return (days * 86_400 + seconds) * 1000 + _fraction_ms(parts["fraction"])


def _fraction_ms(digits: str) -> int:
    """Round up to whole milliseconds: late is allowed, early is not."""
    nanoseconds = int(digits.ljust(9, "0"))
    return -(-nanoseconds // 1_000_000)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
