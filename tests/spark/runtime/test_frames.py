"""Frames that the driver writes out itself, and frames that are worked out once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.runtime.kept import kept
from spark_jobs.runtime.local_rows import local_rows
from spark_jobs.runtime.schemas import Schema

KINDS: Schema = {
    "number": "bigint",
    "text": "string",
    "list": "array<bigint>",
    "rules": "map<string,struct<delays_ms:array<bigint>,most:int>>",
}


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan())


def test_rows_of_the_driver_come_with_their_types_and_nulls(spark: SparkSession) -> None:
    rules = {"g.*": {"delays_ms": [], "most": 3}}
    rows: list[dict[str, Any]] = [
        {"number": 2**63 - 1, "text": 'a "b" \\ ü', "list": [1, 2], "rules": {}},
        {"number": None, "text": None, "list": None, "rules": rules},
    ]
    frame = local_rows(spark, rows, KINDS)
    assert dict(frame.dtypes) == KINDS
    assert [row.asDict(recursive=True) for row in frame.collect()] == rows


def test_no_rows_are_known_to_be_none_before_anything_runs(spark: SparkSession) -> None:
    nothing = local_rows(spark, [], KINDS)
    assert nothing.columns == list(KINDS)
    joined = spark.range(5).join(nothing, f.col("id") == f.col("number"))
    assert plan(joined).startswith("LocalRelation <empty>")


def test_value_of_another_type_is_refused_not_made_null(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="MALFORMED_RECORD"):
        local_rows(spark, [{"number": "many"}], {"number": "bigint"}).collect()


def test_what_is_kept_is_worked_out_once_and_what_follows_begins_there(
    spark: SparkSession,
) -> None:
    stored = kept(spark.range(3).select("id"))
    try:
        assert stored._jdf.queryExecution().analyzed().children().isEmpty()
        both = stored.unionByName(stored.filter("id > 0"))
        assert str(both._jdf.queryExecution().executedPlan()).count("InMemoryTableScan [") == 2
        assert sorted(row.id for row in both.collect()) == [0, 1, 1, 2, 2]
    finally:
        spark.catalog.clearCache()
