"""Renewal of `connector-jars.lock`: `python -m tools.lock_connector_jars` (for maintainers). Change
the version in this file and pyspark's in pyproject.toml, run this file, run the tests, and
commit."""

from pathlib import Path
from typing import Final

import pyspark

from spark_jobs.runtime import session
from spark_jobs.runtime.session import LOCK_NAME
from tools.lock_jars import write_lock

ROOTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "io.delta:delta-spark_2.13:4.0.1",
)


def is_lacking(coordinates: str) -> bool:
    _, artifact, version = coordinates.split(":")
    brought = Path(pyspark.__file__).parent / "jars" / f"{artifact}-{version}.jar"
    return not brought.exists()


if __name__ == "__main__":
    write_lock(
        Path(session.__file__).with_name(LOCK_NAME),
        "The jars that the jobs need beside Spark: its Kafka connector and Delta Lake",
        "python -m tools.lock_connector_jars",
        ROOTS,
        is_lacking,
    )
