"""Frames that the driver writes, and frames that are computed once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.runtime.frames import INTERMEDIATE, Schema, local_rows, location, materialising

KINDS: Schema = {
    "number": "bigint",
    "text": "string",
    "list": "array<bigint>",
    "rules": "map<string,struct<delays_ms:array<bigint>,most:int>>",
}


def plan(frame: DataFrame, printed: pytest.CaptureFixture[str]) -> str:
    printed.readouterr()
    frame.explain("extended")
    return printed.readouterr().out


def test_rows_of_the_driver_come_with_their_types_and_nulls(spark: SparkSession) -> None:
    rules = {"g.*": {"delays_ms": [], "most": 3}}
    rows: list[dict[str, Any]] = [
        {"number": 2**63 - 1, "text": 'a "b" \\ ü', "list": [1, 2], "rules": {}},
        {"number": None, "text": None, "list": None, "rules": rules},
    ]
    frame = local_rows(spark, rows, KINDS)
    assert dict(frame.dtypes) == KINDS
    assert [row.asDict(recursive=True) for row in frame.collect()] == rows


def test_rows_of_the_driver_need_no_python_to_be_read(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """`createDataFrame` would give an RDD that the workers' Python processes read."""
    rows, schema = [{"number": 1}], {"number": "bigint"}
    assert "RDD" in plan(spark.createDataFrame([(1,)], "number bigint"), capsys)
    assert "RDD" not in plan(local_rows(spark, rows, schema), capsys)


def test_no_rows_are_known_to_be_none_before_anything_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = local_rows(spark, [], KINDS)
    assert nothing.columns == list(KINDS)
    joined = spark.range(5).join(nothing, f.col("id") == f.col("number"))
    optimized = plan(joined, capsys).split("== Optimized Logical Plan ==")[1]
    assert optimized.strip().startswith("LocalRelation <empty>")


def test_value_of_another_type_is_refused_not_made_null(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="MALFORMED_RECORD"):
        local_rows(spark, [{"number": "many"}], {"number": "bigint"}).collect()


def test_what_is_materialised_is_computed_once_and_what_follows_begins_there(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with materialising(spark, location(tmp_path)) as materialise:
        drawn = spark.range(3).select("id", f.rand().alias("drawn"))
        first = materialise(drawn)
        both = first.unionByName(first.filter("id > 0"))
        assert "Range (0, 3" not in plan(both, capsys)
        rows = both.collect()
        assert sorted(row.id for row in rows) == [0, 1, 1, 2, 2]
        assert len({row.drawn for row in rows}) == 3
        assert materialise(both).count() == 5
    assert not list(tmp_path.iterdir())


def test_what_a_killed_audit_left_goes_two_days_later_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    within = tmp_path / INTERMEDIATE
    days = {"audit_killed": 3, "audit_of_another_that_runs": 1, "of_somebody": 9}
    for name, age in days.items():
        (within / name / "t0").mkdir(parents=True)
        os.utime(within / name, times=(then := time.time() - age * 86_400, then))
    with materialising(spark, location(tmp_path)) as materialise:
        assert materialise(spark.range(2)).count() == 2
    assert {one.name for one in within.iterdir()} == {*days} - {"audit_killed"}
