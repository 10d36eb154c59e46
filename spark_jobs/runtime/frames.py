"""Frames with agreed columns: of rows that the driver knows."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

Schema: TypeAlias = dict[str, str]
"""Spark's types by column name, in order."""


def conformed(
    frame: DataFrame, schema: Schema, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The frame with exactly these columns, of these types, in this order.

    `columns`: SQL by name, for columns that the frame does not have under that name itself.
    """
    given = columns or {}
    return frame.selectExpr(*[_cast(name, kind, given) for name, kind in schema.items()])


def local_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    """The rows, each by column, in the columns of `schema`; what JSON can hold.

    They travel as one literal, since `createDataFrame` needs Python on the workers to read them.
    Without rows Spark knows that the frame is empty, and leaves out what is joined to it.
    """
    text = json.dumps([*rows])
    read = f.from_json(f.lit(text), f"array<struct<{columns_of(schema)}>>", {"mode": "FAILFAST"})
    frame = spark.range(0, 1, 1, 1).select(f.inline(read))
    return frame if text != "[]" else frame.limit(0)


def columns_of(schema: Schema) -> str:
    """The schema as Spark's SQL spells it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items())


def _cast(name: str, kind: str, columns: Mapping[str, str]) -> str:
    return f"CAST({columns.get(name, f'`{name}`')} AS {kind}) AS `{name}`"
