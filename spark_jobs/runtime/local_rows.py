"""A few rows that the driver knows, as a frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.runtime.schemas import Schema


def local_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    """The rows, each by column, in the columns of `schema`; what JSON can hold.

    They travel as one literal: `createDataFrame` would start Python processes beside the JVM to
    read them, which took a small audit longer than reading its topics. No rows: Spark knows that
    the frame is empty, and leaves out what is joined to it.
    """
    told = json.dumps([*rows])
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in schema.items())
    read = f.from_json(f.lit(told), f"array<struct<{fields}>>", {"mode": "FAILFAST"})
    frame = spark.range(0, 1, 1, 1).select(f.inline(read))
    return frame if told != "[]" else frame.limit(0)
