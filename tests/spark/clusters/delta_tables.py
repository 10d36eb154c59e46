"""A program for `spark-submit`: tables in the folder named on the command line, Parquet and Delta.

Prints, as JSON, what the tables held after each step, and how many executors have worked.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000


def main(folder: str) -> None:
    """Write, read, delete, append, read at a version."""
    with _session() as spark:
        rows = spark.range(0, ROWS, 1, 6).selectExpr("id", "id % 7 AS kind")
        rows.write.parquet(f"{folder}/parquet")
        found = {"parquet": spark.read.parquet(f"{folder}/parquet").count()}
        found |= _delta_steps(spark, rows, f"{folder}/delta")
        found["executors"] = _executors(spark)
        print(json.dumps(found))


def _delta_steps(spark: SparkSession, rows: DataFrame, table: str) -> dict[str, int]:
    vectors = ("delta.enableDeletionVectors", "true")
    rows.write.format("delta").option(*vectors).save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE kind = 3")  # noqa: S608
    left = _count(spark, table)
    rows.limit(10).write.format("delta").mode("append").save(table)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("operation = 'DELETE'")
    metrics = history.collect()[0].operationMetrics
    return {
        "at first": _count(spark, table, versionAsOf="0"),
        "deleted": left,
        "appended": _count(spark, table),
        "vectors": int(metrics["numDeletionVectorsAdded"]),
        "rewritten": int(metrics["numCopiedRows"]),
    }


def _count(spark: SparkSession, table: str, **options: str) -> int:
    return spark.read.format("delta").options(**options).load(table).count()


def _executors(spark: SparkSession) -> int:
    """How many tell the driver that they live; one of those that do is the driver."""
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Stopped in time: executors that lose their driver are started anew again and again."""
    spark = SparkSession.builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
