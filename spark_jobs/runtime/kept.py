"""Frames that are read more than once: worked out once, kept on disk, and planned once."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


def kept(frame: DataFrame) -> DataFrame:
    """`frame`, kept on disk from its first reading on, until the session's cache is cleared.

    What is made from it begins at the kept rows. Spark's own `persist` leaves the whole plan behind
    them in sight: each step after it would go through all steps before it again, and these are so
    many here that a small audit spent most of its time so.
    """
    session, stored = frame.sparkSession, frame.persist(StorageLevel.DISK_ONLY)
    rows = stored._jdf.queryExecution().withCachedData()  # noqa: SLF001
    datasets = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]  # noqa: SLF001
    return ClassicDataFrame(datasets.ofRows(session._jsparkSession, rows), session)  # noqa: SLF001
