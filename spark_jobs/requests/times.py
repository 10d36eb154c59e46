"""Times in headers, read by column expressions: a text column in, milliseconds as bigint out.

Null is what cannot be read. Units are what the text says, never guessed from magnitude, and
fractions of a millisecond are rounded up (docs/guide.md#when). Digits alone are read without any
regular expression: nearly all records have no more.
"""

from itertools import chain
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

MAX_DIGITS: Final = 15
UNITS_MS: Final = (("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000))
FOREVER_MS: Final = 2**62
DAY_MS: Final = 86_400_000
DAY_S: Final = 86_400

WITH_UNIT: Final = r"\A([0-9]{1,12})(ms|s|m|h|d)\z"
ISO_DURATION: Final = (
    r"\AP(?:([0-9]{1,6})W|(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:[.,]([0-9]{1,9}))?S)?)?)\z"
)
ISO_PARTS_MS: Final = ((1, 7 * DAY_MS), (2, DAY_MS), (3, 3_600_000), (4, 60_000), (5, 1_000))
ISO_FRACTION: Final = 6
RFC_3339: Final = (
    r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([0-9]{2}):([0-5][0-9]))\z"
)


def digits(text: Column, longest: int = MAX_DIGITS) -> Column:
    """What a text of 1 to `longest` decimal digits, and nothing else, says: bigint, else null."""
    return f.when(text.rlike(rf"\A[0-9]{{1,{longest}}}\z"), text.try_cast("bigint"))


def plain_digits(text: Column) -> Column:
    """As `digits`, for a column at hand: it is looked at often, but by no regular expression.

    The cast takes blanks around and signs before a number, and fractions: those are left out here.
    """
    begins, ends = text.between("0", "9~"), f.substring(text, -1, 1).between("0", "9")
    is_short = f.octet_length(text) <= MAX_DIGITS
    return f.when(begins & ends & is_short & ~text.contains("."), text.try_cast("bigint"))


def delay_ms(text: Column) -> Column:
    """`1500`, `500ms`, `30s`, `5m`, `2h`, `7d`, or an ISO 8601 duration such as `PT30S`."""
    return f.coalesce(digits(text), worded_delay_ms(text))


def worded_delay_ms(text: Column) -> Column:
    """A delay that is more than digits."""
    return f.when(text.startswith("P"), _iso_duration_ms(text)).otherwise(_with_unit_ms(text))


def level_ms(level: Column, levels_ms: Column) -> Column:
    """The delay of level 1..n of an array; beyond n counts as n, 0 is none."""
    highest = f.size(levels_ms)
    return (
        f.when(level == 0, f.lit(0).cast("bigint"))
        .when(level >= highest, f.get(levels_ms, highest - 1))
        .otherwise(f.get(levels_ms, (level - 1).cast("int")))
    )


def rfc_3339_ms(text: Column) -> Column:
    """The instant that an RFC 3339 text with a zone names, else null."""
    day, clock, fraction, sign, hours, minutes = (
        f.regexp_extract(text, RFC_3339, group) for group in range(1, 7)
    )
    zone_s = f.when(sign == "", f.lit(0)).otherwise(
        hours.try_cast("int") * 3600 + minutes.try_cast("int") * 60
    )
    stamp = f.concat(day, f.lit("T"), clock, f.lit("Z")).try_cast("timestamp")
    exists = ~day.startswith("0000") & (zone_s < DAY_S)
    local_s = f.unix_seconds(stamp)
    seconds = f.when(sign == "-", local_s + zone_s).otherwise(local_s - zone_s)
    return f.when(text.rlike(RFC_3339), f.when(exists, seconds * 1000 + _fraction_ms(fraction)))


def _with_unit_ms(text: Column) -> Column:
    """A number too large to be multiplied is beyond everything that is allowed."""
    number = f.regexp_extract(text, WITH_UNIT, 1).try_cast("bigint")
    unit = f.regexp_extract(text, WITH_UNIT, 2)
    unit_ms = f.element_at(f.create_map(*map(f.lit, chain(*UNITS_MS))), unit)
    length_ms = f.coalesce(f.try_multiply(number, unit_ms), f.lit(FOREVER_MS))
    return f.when(text.rlike(WITH_UNIT), length_ms)


def _iso_duration_ms(text: Column) -> Column:
    """Nothing behind the P or the T alone is no duration."""
    total_ms = _fraction_ms(f.regexp_extract(text, ISO_DURATION, ISO_FRACTION))
    for group, unit_ms in ISO_PARTS_MS:
        part = f.regexp_extract(text, ISO_DURATION, group).try_cast("bigint")
        total_ms += f.coalesce(part, f.lit(0)) * unit_ms
    says_something = text.rlike("[0-9]")
    return f.when(says_something & text.rlike(ISO_DURATION), total_ms)


def _fraction_ms(decimals: Column) -> Column:
    """Decimals of a second: a part of a millisecond counts as a whole one."""
    return f.ceil(f.rpad(decimals, 9, "0").cast("bigint") / 1_000_000)
