"""When a record asks to be delivered: a point in time beats a delay, that a level.

Column expressions over the record's headers, its timestamp and its policy (docs/guide.md, "When").
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.header_names import DELAY, DELIVER_AT, HOP_FROM, HOP_NOT_BEFORE, LEVEL
from spark_jobs.rejections import (
    DELAY_TOO_LONG,
    LEVEL_UNKNOWN,
    TIME_UNREADABLE,
    first_of,
    refused,
)
from spark_jobs.said import Said
from spark_jobs.times import DAY_MS, delay_ms, digits, instant_ms, level_ms

LONGEST_HOP_MS: Final = 7 * DAY_MS


def due_ms(said: Said, timestamp_ms: Column, policy: Column, retry_ms: Column) -> Column:
    """The due; null where it cannot be read, or there is no timestamp to count from.

    retry_ms: the delay where no header says anything; null or 0 for none.
    """
    return (
        f.when(said.has(DELIVER_AT), instant_ms(said.raw(DELIVER_AT)))
        .when(said.has(DELAY), _plus(timestamp_ms, delay_ms(said.raw(DELAY))))
        .when(said.has(LEVEL), _plus(timestamp_ms, level_ms(said.raw(LEVEL), policy["levels_ms"])))
        .otherwise(at_once_or_after(timestamp_ms, retry_ms))
    )


def at_once_or_after(timestamp_ms: Column, retry_ms: Column) -> Column:
    """The due of a record without any time of its own."""
    at_once_ms = f.greatest(timestamp_ms, f.lit(0).cast("bigint"))
    return f.when(retry_ms > 0, _plus(timestamp_ms, retry_ms)).otherwise(at_once_ms)


def due_code(
    said: Said, timestamp_ms: Column, policy: Column, due: Column, is_asked: Column
) -> Column:
    """What is wrong with the due. is_asked: headers decide it. A hop was accepted before."""
    by_level = is_asked & said.has(LEVEL) & ~said.has(DELIVER_AT) & ~said.has(DELAY)
    ahead_ms = f.try_subtract(due, timestamp_ms)
    is_long = (timestamp_ms >= 0) & f.coalesce(ahead_ms > policy["max_delay_ms"], f.lit(False))
    return first_of(
        f.when(
            due.isNull(),
            f.when(by_level & digits(said.text(LEVEL)).isNull(), f.lit(LEVEL_UNKNOWN)).otherwise(
                f.lit(TIME_UNREADABLE)
            ),
        ),
        refused(DELAY_TOO_LONG, is_long & is_asked & ~said.has(HOP_FROM)),
    )


def wanted_ms(said: Said, timestamp_ms: Column, policy: Column, due: Column) -> Column:
    """When a record that may go on from another one may be delivered at the soonest.

    No record waits longer than this for its next attempt, whatever it says.
    """
    longest_ms = f.greatest(policy["max_delay_ms"], f.lit(LONGEST_HOP_MS).cast("bigint"))
    latest_ms = f.try_add(timestamp_ms, longest_ms)
    not_before_ms = f.when(
        said.has(HOP_NOT_BEFORE), f.least(digits(said.text(HOP_NOT_BEFORE)), latest_ms)
    )
    return f.greatest(due, f.lit(0).cast("bigint"), not_before_ms)


def fires_ms(wanted: Column, timestamp_ms: Column, policy: Column) -> Column:
    """When the record is taken up: in time to be rewritten before the ingress ages it out."""
    roll_ms = f.when(timestamp_ms >= 0, f.try_add(timestamp_ms, policy["roll_after_ms"]))
    return f.least(wanted, roll_ms)


def _plus(timestamp_ms: Column, delay: Column) -> Column:
    return f.when(timestamp_ms >= 0, f.try_add(timestamp_ms, delay))
