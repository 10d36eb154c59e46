"""One Spark session for all tests of the audit: starting one takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import spark_session

SMALL = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine with two cores and as many shuffle partitions."""
    folder: Path = tmp_path_factory.mktemp("spark")
    own = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    session = spark_session("tests", "local[2]", "1g", {**SMALL, **own})
    yield session
    session.stop()
