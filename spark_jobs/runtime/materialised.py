"""Frames that are read more than once: computed once, and written to tables that go afterwards."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.location import Location

INTERMEDIATE: Final = ".intermediate"
OURS: Final = "audit_"
LEFT_OVER_S: Final = 2 * 86_400
"""No audit takes as long from one table to the next."""

Materialise: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes a frame now, and gives one of the same rows that begins at the table they were written
to: what is planned on top of it does not go through all steps before it again."""


@contextmanager
def materialising(spark: SparkSession, place: Location) -> Iterator[Materialise]:
    """Gives a `Materialise` whose tables lie within `place` until it ends.

    They belong to a database of the session's catalog, which goes with all that is in it: no other
    way to remove files works on every file system. What is killed leaves them, under
    `.intermediate`: on this machine's disk until somebody comes two days later, elsewhere until
    they are deleted by hand.
    """
    name, numbers = f"{OURS}{uuid.uuid4().hex}", count()
    if place.folder:
        _remove_left_over(place.folder / INTERMEDIATE, time.time() - LEFT_OVER_S)
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


def _remove_left_over(folder: Path, before_s: float) -> None:
    """What nothing was added to since then (epoch s)."""
    for one in folder.glob(f"{OURS}*"):
        with suppress(OSError):
            if one.stat().st_mtime < before_s:
                shutil.rmtree(one)
