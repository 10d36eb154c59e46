"""Lateness of deliveries by minute."""

from pyspark.sql import SparkSession

from spark_jobs.results.summary import by_minute
from tests.support.verdict_rows import delivered, undelivered, verdicts


def test_lateness_is_told_per_target_and_minute_of_the_due(spark: SparkSession) -> None:
    rows = [
        *(delivered(offset, 60_000 + offset, lateness_ms=offset) for offset in range(1, 101)),
        delivered(200, 120_000, lateness_ms=7),
        delivered(201, 120_000, lateness_ms=9, target="payments"),
        undelivered(202, "pending"),
    ]
    found = {tuple(row) for row in by_minute(verdicts(spark, rows)).collect()}
    assert found == {
        ("orders", 60_000, 100, 50, 99, 100),
        ("orders", 120_000, 1, 7, 7, 7),
        ("payments", 120_000, 1, 9, 9, 9),
    }
