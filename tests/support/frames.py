"""Data frames of handmade rows with bytes. Spark needs no Python worker processes for them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import Schema, local_rows


def frame_of(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    return local_rows(spark, [_as_json(row) for row in rows], schema)


def headers_told(
    headers: Iterable[tuple[str, bytes | None]],
) -> list[dict[str, str | bytes | None]]:
    return [{"key": name, "value": value} for name, value in headers]


def _as_json(told: Any) -> Any:
    """Encode bytes as Spark reads them from JSON."""
    if isinstance(told, bytes):
        return b64encode(told).decode()
    if isinstance(told, Mapping):
        return {name: _as_json(part) for name, part in told.items()}
    if isinstance(told, list):
        return [_as_json(part) for part in told]
    return told
