"""Verdicts by windows of event time: of the dues, not of the moment at which they were judged."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.verdicts.verdict_names import ARRIVED, PENDING

KEYS: Final[Schema] = {"window_ms": "bigint", "target": "string", "verdict": "string"}
WINDOWS: Final[Schema] = {
    **KEYS,
    "records": "bigint",
    "late_sum_ms": "bigint",
    "late_max_ms": "bigint",
}
"""window_ms: when it begins, epoch ms. Sums and maxima of lateness: of what was delivered."""
MOST_WINDOWS: Final = 200_000
"""That are kept open: the oldest beyond are final."""


def windows_of(given: DataFrame, length_ms: int, found_ms: int) -> DataFrame:
    """WINDOWS of a batch's VERDICTS; what is pending has none yet.

    What has no due is counted when it was written; an end of a record that is not there (orphaned,
    or a second one), when it was delivered, else when it was found.
    """
    event_ms = f.coalesce("due_ms", "timestamp_ms", "delivered_ms", f.lit(found_ms))
    begins_ms = event_ms - f.pmod(event_ms, f.lit(length_ms))
    closed = given.filter(f.col("verdict") != PENDING).withColumn("window_ms", begins_ms)
    late = f.when(f.col("verdict").isin(*ARRIVED), f.col("lateness_ms"))
    counted = closed.groupBy(*KEYS).agg(
        f.count("*").alias("records"),
        f.sum(late).alias("late_sum_ms"),
        f.max(late).alias("late_max_ms"),
    )
    return conformed(counted, WINDOWS)


def merged(before: DataFrame, added: DataFrame, older_than_ms: int) -> DataFrame:
    """WINDOWS after a batch; those that began before `older_than_ms` are final and leave."""
    together = before.unionByName(added).groupBy(*KEYS)
    found = together.agg(
        f.sum("records").alias("records"),
        f.sum("late_sum_ms").alias("late_sum_ms"),
        f.max("late_max_ms").alias("late_max_ms"),
    )
    current = found.filter(f.col("window_ms") >= older_than_ms)
    return conformed(current.orderBy(f.desc("window_ms")).limit(MOST_WINDOWS), WINDOWS)


def changed(windows: DataFrame, added: DataFrame) -> DataFrame:
    """Those of `windows` that a batch has added to."""
    names = [*KEYS]
    mine, theirs = windows.alias("mine"), added.select(*names).alias("theirs")
    same = [f.col(f"mine.{name}").eqNullSafe(f.col(f"theirs.{name}")) for name in names]
    return mine.join(f.broadcast(theirs), same, "left_semi")


def as_messages(windows: DataFrame) -> DataFrame:
    """Key and value for a compacted topic: JSON both, the key names the window."""
    key: Column = f.to_json(f.struct(*KEYS))
    return windows.select(key.alias("key"), f.to_json(f.struct(*WINDOWS)).alias("value"))
