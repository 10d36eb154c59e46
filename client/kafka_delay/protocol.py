"""Names and rules that the client shares with the proxy (docs/guide.md).

A test compares the client's copy with the proxy's.
"""

import re
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final

PREFIX: Final = "timer-"
TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"
ID: Final = "timer-id"
CANCEL: Final = "timer-cancel"
RECALL: Final = "timer-recall"
RETRY_GROUP: Final = "timer-retry-group"
TIMER_ATTEMPT: Final = "timer-attempt"
TRANSACTION: Final = "timer-transaction"
CHECK_TOPIC: Final = "timer-check-topic"
CHECK_IMMUNITY: Final = "timer-check-immunity"
CHECK: Final = "timer-check"

PREPARE: Final = b"prepare"
CHECK_BACK: Final = b"check"

ORIGINAL_TOPIC: Final = "retry-original-topic"
ORIGINAL_PARTITION: Final = "retry-original-partition"
ORIGINAL_OFFSET: Final = "retry-original-offset"
ATTEMPT: Final = "retry-attempt"
EXCEPTION: Final = "retry-exception"
SIGNATURE: Final = "retry-signature"

INGRESS: Final = "timer.ingress"
ID_BYTES: Final = 256
MAX_DIGITS: Final = 15
"""A number may have at most this many digits. As epoch ms, it reaches the year 33,658."""
TOPIC_NAME_RULE: Final = "a Kafka topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"

_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_MILLISECONDS_PER = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
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


def is_legal_topic(name: object) -> bool:
    """Return whether Kafka accepts this name for a topic."""
    return isinstance(name, str) and _LEGAL_TOPIC.fullmatch(name) is not None


@lru_cache(1_000)
def parse_delay_ms(text: str) -> int:
    """Parse a delay into milliseconds: `1500`, `500ms`, `30s`, `5m`, `2h`, `7d`, `PT30S`.

    Raises ValueError.
    """
    if _is_number(text):
        return int(text)
    if unit := _UNIT.fullmatch(text):
        return int(unit[1]) * _MILLISECONDS_PER[unit[2]]
    iso = _ISO_DURATION.fullmatch(text)
    if not iso or not any(iso.groupdict().values()):
        raise ValueError(f"{text!r} is not a delay")
    parts = iso.groupdict(default="0")
    days = int(parts["weeks"]) * 7 + int(parts["days"])
    seconds = int(parts["hours"]) * 3600 + int(parts["minutes"]) * 60 + int(parts["seconds"])
    return (days * 86_400 + seconds) * 1000 + _fraction_ms(parts["fraction"])


def parse_instant_ms(text: str) -> int:
    """Parse epoch milliseconds, or RFC 3339 with a zone, into epoch milliseconds.

    Raises ValueError.
    """
    if _is_number(text):
        return int(text)
    stamp = _RFC_3339.fullmatch(text)
    if not stamp:
        raise ValueError(
            f"{text!r} is not a time: write epoch milliseconds (1767258000000) or "
            "RFC 3339 with a zone (2026-01-01T09:00:00Z, 2026-01-01T10:00:00.250+01:00)"
        )
    zone = "+00:00" if stamp["zone"] in "Zz" else stamp["zone"]
    try:
        moment = datetime.fromisoformat(stamp["seconds"].upper() + zone)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {error}") from None
    return int(moment.timestamp()) * 1000 + _fraction_ms(stamp["fraction"] or "0")


def parse_levels(text: str) -> tuple[int, ...]:
    """Parse a table of delays such as `1s 5s 10s` into milliseconds.

    Raises ValueError if it is empty, or a delay is shorter than the one before.
    """
    levels = tuple(parse_delay_ms(word) for word in text.split())
    if not levels:
        raise ValueError("the level table is empty: put blanks between delays (1s 5s 10s)")
    if any(later < earlier for earlier, later in pairwise(levels)):
        raise ValueError(f"the level table {text!r} is not in order: sort it by length")
    return levels


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _fraction_ms(digits: str) -> int:
    """Return a decimal fraction of a second in milliseconds.

    The fraction is rounded up, because a record may be late but not early.
    """
    return -(-int(digits.ljust(9, "0")) // 1_000_000)
