"""Frames with given columns, intermediate tables, and locations of results."""

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

Schema: TypeAlias = dict[str, str]
"""Spark's types by column name, in order."""


def conformed(
    frame: DataFrame, schema: Schema, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the frame with these columns, types and order. `columns`: SQL of missing columns."""
    given = {name: f"`{name}`" for name in schema} | dict(columns or {})
    return frame.selectExpr(
        *[f"CAST({given[name]} AS {kind}) AS `{name}`" for name, kind in schema.items()]
    )


def local_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: Schema) -> DataFrame:
    """Return a frame of rows, whose values JSON can hold.
    The rows are one literal, because `createDataFrame` needs Python on the workers. Spark knows
    that a frame without rows is empty, and skips joins with it.
    """
    text = json.dumps([*rows])
    read = f.from_json(f.lit(text), f"array<struct<{columns_of(schema)}>>", {"mode": "FAILFAST"})
    frame = spark.range(0, 1, 1, 1).select(f.inline(read))
    return frame if text != "[]" else frame.limit(0)


def columns_of(schema: Schema) -> str:
    """Return the schema in Spark's SQL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items())


def quoted(names: Iterable[str]) -> str:
    """Return the names as a list for IN in SQL."""
    return "({})".format(", ".join(f"'{name}'" for name in names))


def struct_of(schema: Schema) -> str:
    """Return the schema as the type of a struct."""
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in schema.items())}>"


URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.*")
ON_THIS_MACHINE: Final = "file://"


class Location(NamedTuple):
    """A location of results by its URI, such as `file:///srv/audits`, `hdfs://…` or `s3a://…`.
    A local URI is not escaped: for Hadoop an escaped blank is part of the name.
    """

    uri: str

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return str(self.folder or self.uri)

    @property
    def folder(self) -> Path | None:
        """The folder if the location is on this machine, else None."""
        is_here = self.uri.startswith(f"{ON_THIS_MACHINE}/")
        return Path(self.uri[len(ON_THIS_MACHINE) :]) if is_here else None


def location(text: str | Path) -> Location:
    """Return the location for a local path or a URI."""
    if isinstance(text, str) and URI.fullmatch(text):
        return Location(text.rstrip("/"))
    return Location(f"{ON_THIS_MACHINE}{Path(text).absolute()}")


INTERMEDIATE: Final = ".intermediate"
OURS: Final = "audit_"
LEFT_OVER_S: Final = 2 * 86_400
"""Older intermediate tables are deleted. A running audit never stops writing for this time."""

Materialise: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes a frame immediately. Frames made from the result do not repeat its steps."""


@contextmanager
def materialising(spark: SparkSession, place: Location) -> Iterator[Materialise]:
    """Yield a `Materialise`. Its tables lie within `place` until the context ends.
    The session's catalog drops the tables, on every file system. A killed job leaves its tables
    under `.intermediate`: on this machine for two days, elsewhere until somebody deletes them.
    """
    name, numbers = f"{OURS}{uuid.uuid4().hex}", count()
    for folder in (place.folder / INTERMEDIATE).glob(f"{OURS}*") if place.folder else ():
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - LEFT_OVER_S:
                shutil.rmtree(folder)
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
        if place.folder:
            with suppress(OSError):
                (place.folder / INTERMEDIATE).rmdir()
