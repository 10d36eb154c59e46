"""Times in headers as SQL. Each function takes SQL of a text, and returns SQL of ms (bigint).
Unreadable times are null. A number's unit is never guessed from its size. Fractions of a
millisecond are rounded up (docs/guide.md#when). Most texts are digits, which need no regular
expression.
"""

from typing import Final

MAX_DIGITS: Final = 15
UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FOREVER_MS: Final = 2**62
DAY_MS: Final = 86_400_000

WITH_UNIT: Final = r"R'\A([0-9]{1,12})(ms|s|m|h|d)\z'"
ISO_DURATION: Final = (
    r"R'\AP(?:([0-9]{1,6})W|(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:[.,]([0-9]{1,9}))?S)?)?)"
    r"\z'"
)
ISO_PARTS_MS: Final = ((1, 7 * DAY_MS), (2, DAY_MS), (3, 3_600_000), (4, 60_000), (5, 1_000))
ISO_FRACTION: Final = 6
RFC_3339: Final = (
    r"R'\A([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([0-9]{2}):([0-5][0-9]))\z'"
)


def digits(text: str, longest: int = MAX_DIGITS) -> str:
    """Return SQL of the number in a text of 1 to `longest` digits."""
    return rf"IF({text} RLIKE R'\A[0-9]{{1,{longest}}}\z', try_cast({text} AS bigint), NULL)"


def plain_digits(text: str) -> str:
    """Return SQL of the same number as `digits`, without a regular expression.
    A cast alone would accept signs and fractions, too.
    """
    return f"""
      IF({text} BETWEEN '0' AND '9~' AND substring({text}, -1, 1) BETWEEN '0' AND '9'
        AND octet_length({text}) <= {MAX_DIGITS} AND NOT contains({text}, '.'),
        try_cast({text} AS bigint), NULL)"""


def delay_ms(text: str) -> str:
    """Return SQL of `1500`, `500ms`, `30s`, `5m`, `2h`, `7d`, or ISO 8601 such as `PT30S`."""
    return f"coalesce({digits(text)}, {worded_delay_ms(text)})"


def worded_delay_ms(text: str) -> str:
    """Return SQL of a delay that is more than digits."""
    return f"IF(startswith({text}, 'P'), {_iso_duration_ms(text)}, {_with_unit_ms(text)})"


def level_ms(level: str, levels_ms: str) -> str:
    """Return SQL of the delay for a level. Level 0 is no delay.
    A level above the highest one means the highest one.
    """
    highest = f"size({levels_ms})"
    return f"""
      CASE WHEN {level} = 0 THEN CAST(0 AS bigint)
        WHEN {level} >= {highest} THEN get({levels_ms}, {highest} - 1)
        ELSE get({levels_ms}, CAST({level} - 1 AS int)) END"""


def rfc_3339_ms(text: str) -> str:
    """Return SQL of the instant in an RFC 3339 text with a zone."""
    day, clock, fraction, sign, hours, minutes = (
        f"regexp_extract({text}, {RFC_3339}, {group})" for group in range(1, 7)
    )
    offset_s = f"try_cast({hours} AS int) * 3600 + try_cast({minutes} AS int) * 60"
    zone_s = f"IF({sign} = '', 0, {offset_s})"
    local_s = f"unix_seconds(try_cast(concat({day}, 'T', {clock}, 'Z') AS timestamp))"
    seconds = f"({local_s} + IF({sign} = '-', 1, -1) * {zone_s})"
    return f"""
      IF({text} RLIKE {RFC_3339}, IF(NOT startswith({day}, '0000') AND {zone_s} < {DAY_MS // 1000},
        {seconds} * 1000 + {_fraction_ms(fraction)}, NULL), NULL)"""


def _with_unit_ms(text: str) -> str:
    """Return SQL of the ms in a number with a unit, or of FOREVER_MS if they overflow."""
    number, unit = (f"regexp_extract({text}, {WITH_UNIT}, {group})" for group in (1, 2))
    units = ", ".join(f"'{name}', {unit_ms}" for name, unit_ms in UNITS_MS.items())
    product = f"try_multiply(try_cast({number} AS bigint), element_at(map({units}), {unit}))"
    return f"IF({text} RLIKE {WITH_UNIT}, coalesce({product}, {FOREVER_MS}), NULL)"


def _iso_duration_ms(text: str) -> str:
    parts = [
        f"coalesce(try_cast(regexp_extract({text}, {ISO_DURATION}, {group}) AS bigint), 0) * {ms}"
        for group, ms in ISO_PARTS_MS
    ]
    fraction = _fraction_ms(f"regexp_extract({text}, {ISO_DURATION}, {ISO_FRACTION})")
    total = " + ".join((fraction, *parts))
    return f"IF({text} RLIKE '[0-9]' AND {text} RLIKE {ISO_DURATION}, {total}, NULL)"


def _fraction_ms(decimals: str) -> str:
    return f"ceil(CAST(rpad({decimals}, 9, '0') AS bigint) / 1000000)"
