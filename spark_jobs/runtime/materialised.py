"""Frames that are read more than once: computed once, and written to tables that go afterwards."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.sql import DataFrame

from spark_jobs.runtime.frames import spark_path

INTERMEDIATE: Final = ".intermediate"

Materialise: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes a frame now, and gives one of the same rows that begins at the table they were written
to: what is planned on top of it does not go through all steps before it again."""


@contextmanager
def materialising(folder: Path) -> Iterator[Materialise]:
    """Gives a `Materialise` whose tables lie within `folder` until it ends."""
    tables, numbers = folder / INTERMEDIATE, count()
    shutil.rmtree(tables, ignore_errors=True)

    def materialise(frame: DataFrame) -> DataFrame:
        place = spark_path(tables / str(next(numbers)))
        frame.write.parquet(place)
        return frame.sparkSession.read.schema(frame.schema).parquet(place)

    try:
        yield materialise
    finally:
        shutil.rmtree(tables, ignore_errors=True)
