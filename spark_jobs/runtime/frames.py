"""Frames that are kept, and where results lie."""

import json
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

# Frames with agreed columns: of rows that the driver knows.

Schema: TypeAlias = dict[str, str]
"""Spark's types by column name, in order."""


def conformed(
    frame: DataFrame, schema: Schema, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The frame with exactly these columns, of these types, in this order.

    `columns`: SQL by name, for columns that the frame does not have under that name itself.
    """
    given = columns or {}
    return frame.selectExpr(*[_cast(name, kind, given) for name, kind in schema.items()])


def local_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    """The rows, each by column, in the columns of `schema`; what JSON can hold.

    They travel as one literal, since `createDataFrame` needs Python on the workers to read them.
    Without rows Spark knows that the frame is empty, and leaves out what is joined to it.
    """
    text = json.dumps([*rows])
    read = f.from_json(f.lit(text), f"array<struct<{columns_of(schema)}>>", {"mode": "FAILFAST"})
    frame = spark.range(0, 1, 1, 1).select(f.inline(read))
    return frame if text != "[]" else frame.limit(0)


def columns_of(schema: Schema) -> str:
    """The schema as Spark's SQL spells it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items())


def _cast(name: str, kind: str, columns: Mapping[str, str]) -> str:
    return f"CAST({columns.get(name, f'`{name}`')} AS {kind}) AS `{name}`"


# Where results lie: a folder of this machine, or a URI of whatever file system Hadoop knows.

URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.*")
ON_THIS_MACHINE: Final = "file://"


class Location(NamedTuple):
    """A place by its URI, such as `file:///srv/audits`, `hdfs://…`, `s3a://…` or `abfs://…`.

    On this machine's disk it is named as Hadoop takes it: not as `as_uri` does, since an escaped
    blank would be part of the name."""

    uri: str

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return str(self.folder or self.uri)

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one of this machine; else None."""
        return Path(self.uri[len(ON_THIS_MACHINE) :]) if self._is_here else None

    @property
    def _is_here(self) -> bool:
        return self.uri.startswith(f"{ON_THIS_MACHINE}/")


def location(text: str | Path) -> Location:
    """The place that a person names: a path (of this machine), or a URI."""
    if isinstance(text, str) and URI.fullmatch(text):
        return Location(text.rstrip("/"))
    return Location(f"{ON_THIS_MACHINE}{Path(text).absolute()}")


# Frames that are read more than once: computed once, and written to tables that go afterwards.

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
