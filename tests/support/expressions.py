"""Evaluation of an SQL expression for many values in one data frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from tests.support.frames import frame_of, headers_told

HEADERS = "array<struct<key:string,value:binary>>"


def answers(
    spark: SparkSession, cases: Sequence[Any], kind: str, read: Callable[[str], str]
) -> list[Any]:
    """Return the result of an SQL expression for each case. `read` makes the expression from a
    column name."""
    told = map(headers_told, cases) if kind == HEADERS else cases
    rows = [{"number": number, "told": case} for number, case in enumerate(told)]
    frame = frame_of(spark, rows, {"number": "int", "told": kind})
    read_rows = frame.selectExpr("number", f"{read('told')} AS answer").collect()
    return [row.answer for row in sorted(read_rows, key=lambda row: row.number)]
