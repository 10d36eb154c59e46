"""An audit reads only those open records that may have changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.histories.ends import ENDS, REQUESTS
from spark_jobs.histories.open_records import ALWAYS, NEVER, OPEN, OpenRecords, Touched
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Materialise, conformed, location, materialising
from spark_jobs.tables import Tables
from tests.support.frames import frame_of

AT_MS = 1_000
ROWS: tuple[tuple[int, int, str | None], ...] = (
    (1, ALWAYS, None),
    (2, AT_MS, None),
    (3, AT_MS + 1, None),
    (4, AT_MS, "due"),
    (5, NEVER, "due"),
    (6, 5_000, "asked for"),
    (7, NEVER, "asked for"),
    (8, 5_000, "quiet"),
    (9, NEVER, "quiet"),
    (10, 5_000, None),
    (11, 5_000, "ended"),
    (12, NEVER, "ended"),
)
"""Offset, time of the next look, and id."""


def rows(spark: SparkSession, told: tuple[tuple[int, int, str | None], ...] = ROWS) -> DataFrame:
    schema = {"offset": "bigint", "review_ms": "bigint", "name": "string"}
    names = ("offset", "review_ms", "name")
    found = frame_of(spark, [dict(zip(names, row, strict=True)) for row in told], schema)
    return open_of(found.selectExpr("0 AS partition", "*", "CAST(name AS binary) AS ident"))


def open_of(found: DataFrame) -> DataFrame:
    known = {"ident": "ident", "kind": "'record'", "known_verdict": "'pending'"}
    fields = ", ".join(
        f"'{name}', CAST({known.get(name, 'NULL')} AS {kind})"
        for name, kind in REQUESTS.items()
        if name not in ("partition", "offset")
    )
    columns = {
        "has_id": "ident IS NOT NULL",
        "id_hash": "IF(ident IS NULL, NULL, xxhash64(partition, ident))",
        "request": f"named_struct({fields})",
        "ends": "array()",
    }
    return conformed(found, OPEN, columns)


def arrived(spark: SparkSession, name: str, rows: list[Mapping[str, Any]]) -> DataFrame:
    return frame_of(
        spark,
        [{"partition": 0, **row} for row in rows],
        {"requests": REQUESTS, "ends": ENDS}[name],
    )


@pytest.fixture
def records(spark: SparkSession, tmp_path: Path) -> OpenRecords:
    found = OpenRecords(Tables(spark, location(tmp_path)))
    found.put(None, rows(spark))
    return found


def touched(
    records: OpenRecords, requests: DataFrame, ends: DataFrame, materialise: Materialise
) -> Touched:
    closed = requests.sparkSession.range(1).selectExpr("0 AS partition", "100L AS closed_to")
    return records.touched(AT_MS, (requests, ends), closed, materialise)


def offsets(found: DataFrame) -> list[int]:
    return sorted(row.offset for row in found.select("offset").collect())


def test_due_records_those_with_a_new_records_id_and_those_that_ended_are_looked_at(
    spark: SparkSession, records: OpenRecords, tmp_path: Path
) -> None:
    requests = arrived(spark, "requests", [{"offset": 100, "ident": b"asked for"}])
    ends = arrived(spark, "ends", [{"offset": 10}, {"offset": 11}, {"offset": 50}, {"offset": 100}])
    with materialising(spark, location(tmp_path)) as materialise:
        found = touched(records, requests, ends, materialise)
        assert offsets(found.rows) == [1, 2, 4, 5, 6, 7, 10, 11, 12]
        assert records.pending_beside(found) == 2
        more = rows(spark, ((2, 5_000, None), (100, 6_000, "asked for")))
        records.put(found, more)
    version = records.version
    assert version is not None
    assert offsets(records.as_of(version)) == [2, 3, 8, 9, 100]


def test_where_nothing_new_came_only_what_is_due_is_looked_at(
    spark: SparkSession, records: OpenRecords, tmp_path: Path
) -> None:
    before = records.version
    nothing = arrived(spark, "requests", []), arrived(spark, "ends", [])
    with materialising(spark, location(tmp_path)) as materialise:
        found = touched(records, *nothing, materialise)
        assert offsets(found.rows) == [1, 2, 4, 5]
        assert records.pending_beside(found) == 5
        records.put(found, rows(spark, ((2, 5_000, None),)))
        records.go_back(before)
        again = touched(records, *nothing, materialise)
        assert offsets(again.rows) == [1, 2, 4, 5]
        assert records.pending_beside(again) == 5


def test_audits_at_the_same_time_are_refused_and_undone(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, location(tmp_path))
    records, nothing = OpenRecords(tables), rows(spark, ())
    tables.sign("first")
    records.put(None, rows(spark))
    before = records.version
    new = arrived(spark, "requests", []), arrived(spark, "ends", [])
    with materialising(spark, location(tmp_path)) as materialise:
        found = touched(records, *new, materialise)
        tables.sign("another")
        records.put(found, nothing)
        tables.sign("this")
        with pytest.raises(ResultsRefused, match="at the same time"):
            records.put(found, nothing)
        records.go_back(before)
        assert offsets(touched(records, *new, materialise).rows) == [1, 2, 4, 5]
    tables.sign("")


def test_records_of_another_place_are_taken_over_as_they_were(
    spark: SparkSession, records: OpenRecords, tmp_path: Path
) -> None:
    version = records.version
    assert version is not None
    records.put(None, rows(spark, ()))
    other = OpenRecords(Tables(spark, location(tmp_path / "other")))
    other.copy(records, version)
    newest = other.version
    assert newest is not None
    assert offsets(other.as_of(newest)) == [row[0] for row in ROWS]
    other.go_back(None)
    nothing = arrived(spark, "requests", []), arrived(spark, "ends", [])
    with materialising(spark, location(tmp_path)) as materialise:
        assert not offsets(touched(other, *nothing, materialise).rows)
