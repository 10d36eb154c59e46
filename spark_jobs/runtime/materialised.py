"""Frames that are read more than once: computed once, and written to tables that go afterwards."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.location import Location

INTERMEDIATE: Final = ".intermediate"

Materialise: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes a frame now, and gives one of the same rows that begins at the table they were written
to: what is planned on top of it does not go through all steps before it again."""


@contextmanager
def materialising(spark: SparkSession, place: Location) -> Iterator[Materialise]:
    """Gives a `Materialise` whose tables lie within `place` until it ends.

    They belong to a database of the session's catalog, which goes with all that is in it: no other
    way to remove files works on every file system. Without one that ends orderly they stay, under
    `.intermediate`, and may be deleted by hand once no audit runs.
    """
    name, numbers = f"audit_{uuid.uuid4().hex}", count()
    within = (place / INTERMEDIATE / name).uri.replace("'", "\\'")
    spark.sql(f"CREATE DATABASE {name} LOCATION '{within}'")

    def materialise(frame: DataFrame) -> DataFrame:
        table = f"{name}.t{next(numbers)}"
        frame.write.format("parquet").saveAsTable(table)
        return spark.table(table)

    try:
        yield materialise
    finally:
        spark.sql(f"DROP DATABASE {name} CASCADE")
        if folder := place.folder:
            with suppress(OSError):
                (folder / INTERMEDIATE).rmdir()
