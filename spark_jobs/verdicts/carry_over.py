"""What an audit leaves for the next one that goes on from it: records that are not done yet.

A record that the proxy has read is done once it has a verdict other than pending; from then on
another end of it is one too many. What the proxy has not read yet is read again next time, by the
settings that judge it then; only its ends, if it has any, are kept. Of records that share an id,
those are kept as well that say what becomes of one that is not done.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.runtime.schemas import ASKED, ENDS, REQUESTS, conformed
from spark_jobs.verdicts.rules import asked
from spark_jobs.verdicts.verdict_names import BROKEN

PENDING: Final = "pending"
PLACE: Final = ("partition", "offset")
KINDS_OF_END: Final = (
    ("delivery", "deliveries"),
    ("outcome", "outcomes"),
    ("letter", "letters"),
)
MOST_ENDS: Final = 2
"""Of each kind: more are no other violation."""
OPEN_CASES: Final = (
    *PLACE,
    "asked",
    *(name for pair in KINDS_OF_END for name in pair),
    "last_outcome",
    "came_from",
)
"""The columns of facts, how the record ended that it goes on from, its `verdict`, and whether its
request is kept (else its ends alone)."""


def open_case(is_request_kept: Column) -> Column:
    """A struct of what is kept of a case that was ruled."""
    return f.struct(
        *OPEN_CASES,
        f.col("found.verdict").alias("verdict"),
        f.coalesce(is_request_kept, f.lit(False)).alias("is_request_kept"),
    )


def gets_verdict() -> Column:
    """Whether this audit gives the record its verdict.

    One that an earlier audit has closed gets another only if something new broke it.
    """
    is_within = (f.col("offset") >= f.col("start")) & (f.col("offset") < f.col("end"))
    is_broken_anew = f.col("found.verdict").isin(*BROKEN) & (_ends() > asked("known_ends"))
    was_open = (asked("known_verdict") == PENDING) | is_broken_anew
    return (
        f.when(asked().isNull(), ~_is_unread())
        .when(asked("known_verdict").isNull(), is_within)
        .otherwise(was_open)
    )


def is_left_open() -> Column:
    """Whether the proxy has read the record and it has not ended."""
    is_pending = f.col("found.verdict") == PENDING
    return f.coalesce(asked().isNotNull() & _is_read() & is_pending, f.lit(False))


def has_early_ends() -> Column:
    """Whether there are ends of a record that the proxy had not read when it committed last."""
    is_there = asked().isNotNull() | _is_unread()
    return f.coalesce(~_is_read() & is_there & (_ends() > 0), f.lit(False))


def with_oldest_needed(ruled: DataFrame) -> DataFrame:
    """With `needed_from`: of the records that share an id, those from this offset on are kept.

    What opened the chapter of one that is not done tells what may become of it.
    """
    goes_on = f.coalesce(f.col("successor") >= f.col("next_offset"), f.lit(False))
    is_open = is_left_open() | goes_on | (asked().isNotNull() & ~_is_read())
    opened_at = f.coalesce(f.col("prev_opener.offset"), f.col("offset"))
    alone = f.when(asked("ident").isNull(), f.col("offset"))
    of_id = Window.partitionBy("partition", asked("ident"), alone)
    return ruled.withColumn("needed_from", f.min(f.when(is_open, opened_at)).over(of_id))


def is_needed() -> Column:
    """Whether a record is kept, by `needed_from`."""
    return f.coalesce(_is_read() & (f.col("offset") >= f.col("needed_from")), f.lit(False))


def open_requests(opened: DataFrame) -> DataFrame:
    """REQUESTS that the next audit begins with."""
    kept = opened.filter("is_request_kept")
    known = {
        "known_verdict": f.col("verdict"),
        "known_ends": _ends(),
        "known_from": f.col("came_from"),
    }
    fields = {name: f.col(f"asked.{name}") for name in ASKED if name not in {*PLACE, "target_key"}}
    return _as(kept, {**fields, **known}, REQUESTS)


def open_ends(opened: DataFrame) -> DataFrame:
    """ENDS that the next audit begins with."""
    several = [
        f.array_repeat(f.col(end), f.least(f.col(count), f.lit(MOST_ENDS)).cast("int"))
        for end, count in KINDS_OF_END
    ]
    found = opened.select(*PLACE, f.explode(f.concat(*several)).alias("end"))
    fields = {name: f.col(f"end.{name}") for name in ENDS if name not in PLACE}
    return _as(found, fields, ENDS)


def _as(frame: DataFrame, fields: dict[str, Column], schema: dict[str, str]) -> DataFrame:
    places = {name: f.col(name) for name in PLACE}
    columns = {name: f.lit(None) for name in schema} | places | fields
    return conformed(frame.select([c.alias(name) for name, c in columns.items()]), schema)


def _is_read() -> Column:
    return f.col("offset") < f.col("next_offset")


def _is_unread() -> Column:
    """Whether the ingress holds the offset, and this audit has not read so far."""
    is_beyond = (f.col("offset") >= f.col("read_to")) & (f.col("offset") < f.col("log_end"))
    return f.coalesce(is_beyond, f.lit(False))


def _ends() -> Column:
    return f.col("deliveries") + f.col("outcomes") + f.col("letters")
