"""Renewal of the lock files here: `python -m tests.support.hadoop.lock_jars` (for maintainers).
Change a version here and pyspark's in pyproject.toml, run this file, run the tests, and commit."""

from typing import Final

from tests.support.hadoop.hadoop_jars import HADOOP_LOCK
from tools.lock_connector_jars import is_lacking
from tools.lock_jars import write_lock

COMMAND: Final = "python -m tests.support.hadoop.lock_jars"
HADOOP_ROOTS: Final = (
    # All servers of HDFS and YARN. Spark has the client jars that they need.
    "org.apache.hadoop:hadoop-client-minicluster:3.4.1",
    # Jars that YARN's servers need, and that none of their poms names.
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "javax.xml.bind:jaxb-api:2.3.1",
)
NOT_NEEDED: Final = ("junit", "hamcrest-core", "commons-logging", "jsr305", "snappy-java")
BROUGHT_BY_SPARK: Final = ("slf4j-api", "scala-library", "antlr4-runtime")
"""Jars that Spark has in another version."""


def is_wanted(coordinates: str) -> bool:
    artifact = coordinates.split(":")[1]
    return artifact not in {*NOT_NEEDED, *BROUGHT_BY_SPARK} and is_lacking(coordinates)


if __name__ == "__main__":
    write_lock(HADOOP_LOCK, "Hadoop's servers, for tests", COMMAND, HADOOP_ROOTS, is_wanted)
