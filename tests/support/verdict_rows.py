"""Small handmade VERDICTS frames."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import local_rows
from spark_jobs.verdicts.evaluation import VERDICTS

USUAL_MS = 60_000
NOWHERE = ("delivered_ms", "lateness_ms", "ended_ms", "at_topic", "at_partition", "at_offset")


def delivered(offset: int, due_ms: int, lateness_ms: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "partition": 0,
        "offset": offset,
        "verdict": "delivered",
        "is_violation": False,
        "kind": "record",
        "target": "orders",
        "due_ms": due_ms,
        "timestamp_ms": due_ms - 1000,
        "delivered_ms": due_ms + lateness_ms,
        "lateness_ms": lateness_ms,
        "ended_ms": due_ms + lateness_ms,
        "is_late": lateness_ms > USUAL_MS,
        "at_topic": "orders",
        "at_partition": 0,
        "at_offset": offset,
        **more,
    }


def undelivered(offset: int, verdict: str, **more: Any) -> dict[str, Any]:
    nowhere = dict.fromkeys(NOWHERE)
    return {**delivered(offset, 5_000), "verdict": verdict, **nowhere, **more}


def verdicts(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    return local_rows(spark, rows, VERDICTS)
