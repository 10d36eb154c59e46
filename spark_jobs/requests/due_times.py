"""When a record asks to be delivered: a point in time beats a delay, that a level.

Column expressions over the record's headers, its timestamp and its policy (docs/guide.md#when).
"""

from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records import headers as names
from spark_jobs.records.headers import RequestHeaders
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.times import DAY_MS, digits, level_ms, rfc_3339_ms, worded_delay_ms

LONGEST_HOP_MS: Final = 7 * DAY_MS
LATEST_MS: Final = 10**15 - 1
"""A record's own timestamp beyond that is no clock's."""


class TimeHeader(NamedTuple):
    """The header with a time that counts: its name (null: there is none), its text, and the number
    that this is where it is digits alone."""

    name: Column
    text: Column
    number: Column


def time_name(headers: RequestHeaders) -> Column:
    """Which header with a time counts."""
    return f.coalesce(*(f.when(headers.has(name), f.lit(name)) for name in names.TIMES))


def time_text(headers: RequestHeaders) -> Column:
    """What it says."""
    instant, delay, level = map(headers.text, names.TIMES)
    return (
        f.when(headers.has(names.DELIVER_AT), instant)
        .when(headers.has(names.DELAY), delay)
        .otherwise(level)
    )


def due_ms(header: TimeHeader, timestamp_ms: Column, policy: Column, retry_ms: Column) -> Column:
    """The due; null where it cannot be read, or there is no timestamp to count from.

    retry_ms: the delay where no header says anything; null or 0 for none.
    """
    instant = f.coalesce(header.number, rfc_3339_ms(header.text))
    delay = f.coalesce(header.number, worded_delay_ms(header.text))
    level = level_ms(header.number, policy["levels_ms"])
    at_once_ms = f.greatest(timestamp_ms, f.lit(0).cast("bigint"))
    return (
        f.when(header.name == names.DELIVER_AT, instant)
        .when(header.name == names.DELAY, _plus(timestamp_ms, delay))
        .when(header.name == names.LEVEL, _plus(timestamp_ms, level))
        .when(retry_ms > 0, _plus(timestamp_ms, retry_ms))
        .otherwise(at_once_ms)
    )


def due_code(
    header: TimeHeader, timestamp_ms: Column, policy: Column, due: Column, is_hop: Column
) -> Column:
    """What is wrong with the due. A hop was accepted before."""
    is_no_level = header.name.eqNullSafe(names.LEVEL) & header.number.isNull()
    ahead_ms = f.try_subtract(due, timestamp_ms)
    is_long = (timestamp_ms >= 0) & f.coalesce(ahead_ms > policy["max_delay_ms"], f.lit(False))
    is_past = f.coalesce(
        (header.name == names.DELIVER_AT)
        & (f.try_subtract(timestamp_ms, due) > policy["max_past_ms"]),
        f.lit(False),
    )
    return first_of(
        refused(codes.TIME_UNREADABLE, timestamp_ms > LATEST_MS),
        refused(codes.LEVEL_UNKNOWN, due.isNull() & is_no_level),
        refused(codes.TIME_UNREADABLE, due.isNull()),
        refused(codes.TIME_PAST, is_past & ~is_hop),
        refused(codes.DELAY_TOO_LONG, is_long & header.name.isNotNull() & ~is_hop),
    )


def wanted_ms(headers: RequestHeaders, timestamp_ms: Column, policy: Column, due: Column) -> Column:
    """When a record that may go on from another one may be delivered at the soonest.

    No record waits longer than this for its next attempt, whatever it says.
    """
    longest_ms = f.greatest(policy["max_delay_ms"], f.lit(LONGEST_HOP_MS).cast("bigint"))
    latest_ms = f.try_add(timestamp_ms, longest_ms)
    not_before_ms = f.when(
        headers.has(names.HOP_NOT_BEFORE),
        f.least(digits(headers.text(names.HOP_NOT_BEFORE)), latest_ms),
    )
    return f.greatest(due, f.lit(0).cast("bigint"), not_before_ms)


def fires_ms(wanted: Column, timestamp_ms: Column, policy: Column) -> Column:
    """When the record is taken up: in time to be rewritten before the ingress ages it out."""
    roll_ms = f.when(timestamp_ms >= 0, f.try_add(timestamp_ms, policy["roll_after_ms"]))
    return f.least(wanted, roll_ms)


def _plus(timestamp_ms: Column, delay: Column) -> Column:
    return f.when(timestamp_ms >= 0, f.try_add(timestamp_ms, delay))
