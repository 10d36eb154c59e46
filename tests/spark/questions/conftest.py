"""One place with four audits, for all tests of the questions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.results.result_tables import register_views
from spark_jobs.runtime.frames import Location, location
from tests.spark.questions.audited_place import write_audits


@pytest.fixture(scope="session")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Location:
    place = location(tmp_path_factory.mktemp("audits") / "of two days")
    write_audits(spark, place)
    return place


@pytest.fixture(scope="session")
def asked(spark: SparkSession, audited: Location) -> SparkSession:
    register_views(spark, audited)
    return spark
