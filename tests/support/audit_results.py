"""Findings of the last audit in a folder of results."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.results.result_tables import read_verdicts, read_violations
from spark_jobs.results.summary import History
from spark_jobs.runtime.frames import Location, location


def verdicts_in(spark: SparkSession, place: Path | Location) -> DataFrame:
    history, name = _last(spark, place)
    return read_verdicts(history.tables, name)


def violations_in(spark: SparkSession, place: Path | Location) -> DataFrame:
    history, name = _last(spark, place)
    return read_violations(history.tables, name)


def _last(spark: SparkSession, place: Path | Location) -> tuple[History, str]:
    history = History(spark, place if isinstance(place, Location) else location(place))
    return history, history.last_chain()[0]
