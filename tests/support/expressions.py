"""What a column expression makes of values, many in one frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from tests.support.frames import frame_of, headers_told

HEADERS = "array<struct<key:string,value:binary>>"


def answers(
    spark: SparkSession, cases: Sequence[Any], kind: str, read: Callable[[Column], Column]
) -> list[Any]:
    """What the expression makes of each case."""
    told = map(headers_told, cases) if kind == HEADERS else cases
    rows = [{"number": number, "told": case} for number, case in enumerate(told)]
    frame = frame_of(spark, rows, {"number": "int", "told": kind})
    read_rows = frame.select("number", read(f.col("told")).alias("answer")).collect()
    return [row.answer for row in sorted(read_rows, key=lambda row: row.number)]
