"""Frames of rows made by hand, bytes among them, without the Python processes that Spark would
start to read them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import Schema, local_rows


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    """The rows, each by column, in the columns of `schema`; what a row does not name is null."""
    return local_rows(spark, [_as_json(row) for row in rows], schema)


def headers_told(
    headers: Iterable[tuple[str, bytes | None]],
) -> list[dict[str, str | bytes | None]]:
    """A record's headers as the rows of a frame have them."""
    return [{"key": name, "value": value} for name, value in headers]


def _as_json(told: Any) -> Any:
    """Bytes become what Spark reads as bytes in JSON."""
    if isinstance(told, bytes):
        return b64encode(told).decode()
    if isinstance(told, Mapping):
        return {name: _as_json(part) for name, part in told.items()}
    if isinstance(told, list):
        return [_as_json(part) for part in told]
    return told
