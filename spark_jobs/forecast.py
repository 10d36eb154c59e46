"""How much becomes due when: what an audit found waiting, per target and hour.

`python -m spark_jobs.forecast --output DIR` prints it for the results of an audit.
"""

import time
from typing import Annotated, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.arguments import AsJson, DriverMemory, Master, Output, readable_errors, run
from spark_jobs.results.formatting import print_rows
from spark_jobs.results.lateness_figures import HOUR_MS
from spark_jobs.results.newest_verdicts import newest_verdicts
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.runtime.session import job_session

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


def main(
    output: Output,
    hours: Annotated[int, typer.Option(min=1, help="How far to look ahead.")] = 24,
    json: AsJson = False,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "1g",
) -> None:
    """How much of what an audit found waiting becomes due in each hour from now on."""
    with readable_errors(), job_session("forecast", master, driver_memory) as spark:
        now_ms = time.time_ns() // 1_000_000
        found = forecast(newest_verdicts(spark, output), now_ms, hours)
        print_rows(found.orderBy("target", f.col("hour_ms").asc_nulls_last()), as_json=json)


if __name__ == "__main__":
    run(main)
