"""How late deliveries were, and how much becomes due when."""

from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.forecast import forecast
from spark_jobs.results.lateness_figures import HOUR_MS, by_hour, by_minute
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


def test_lateness_is_told_per_length_of_the_delay_and_hour(spark: SparkSession) -> None:
    rows = [
        delivered(1, HOUR_MS, lateness_ms=1, timestamp_ms=HOUR_MS + 5),
        delivered(2, HOUR_MS, lateness_ms=2, timestamp_ms=HOUR_MS - 1000),
        delivered(3, HOUR_MS, lateness_ms=3, timestamp_ms=HOUR_MS - 1001),
        delivered(4, 30 * HOUR_MS + 5, lateness_ms=4, timestamp_ms=0),
    ]
    found = {tuple(row)[1:5] for row in by_hour(verdicts(spark, rows)).collect()}
    assert found == {
        ("at once", HOUR_MS, 1, 1),
        ("up to 1 s", HOUR_MS, 1, 2),
        ("up to 1 min", HOUR_MS, 1, 3),
        ("longer", 30 * HOUR_MS, 1, 4),
    }


def test_forecast_counts_what_waits_by_the_hour_it_becomes_due(spark: SparkSession) -> None:
    now_ms = 100 * HOUR_MS + 5
    waiting: dict[int, dict[str, Any]] = {
        1: {"due_ms": 3 * HOUR_MS},
        2: {"due_ms": 100 * HOUR_MS + 1},
        3: {"due_ms": 101 * HOUR_MS, "kind": "prepare"},
        4: {"due_ms": 101 * HOUR_MS + 1},
        5: {"due_ms": 102 * HOUR_MS},
        6: {"due_ms": 100 * HOUR_MS, "kind": "cancel"},
    }
    rows = [undelivered(offset, "pending", **more) for offset, more in waiting.items()]
    found = forecast(verdicts(spark, [*rows, delivered(7, 101 * HOUR_MS)]), now_ms, hours=2)
    assert {tuple(row) for row in found.collect()} == {
        ("orders", 100 * HOUR_MS, 2, 0),
        ("orders", 101 * HOUR_MS, 2, 1),
        ("orders", None, 1, 0),
    }
