"""How much becomes due when: what an audit found waiting, per target and hour.

`python -m spark_jobs.forecast --output DIR` prints it for the results of an audit.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.lateness import HOUR_MS
from spark_jobs.schemas import Schema, conformed

FORECAST: Final[Schema] = {
    "target": "string",
    "hour_ms": "bigint",
    "records": "bigint",
    "half_messages": "bigint",
}
"""hour_ms: when the hour begins, epoch ms; null for what lies beyond the last hour asked for.
half_messages: how many of `records` are half messages, which go out only if they are committed."""


def forecast(verdicts: DataFrame, now_ms: int, hours: int = 24) -> DataFrame:
    """What is pending in VERDICTS, by the hour in which it becomes due, as FORECAST.

    Whole hours of the clock; what is overdue at `now_ms` counts in the first of them.
    """
    first_ms = now_ms - now_ms % HOUR_MS
    due_ms = f.greatest(f.col("due_ms"), f.lit(first_ms))
    hour_ms = due_ms - f.pmod(due_ms, f.lit(HOUR_MS))
    within = f.when(hour_ms < first_ms + hours * HOUR_MS, hour_ms)
    waiting = verdicts.where(
        (f.col("verdict") == "pending") & f.col("kind").isin("record", "prepare")
    )
    grouped = waiting.groupBy("target", within.alias("hour_ms")).agg(
        f.count("*").alias("records"),
        f.count_if(f.col("kind") == "prepare").alias("half_messages"),
    )
    return conformed(grouped, FORECAST)
