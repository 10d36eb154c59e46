"""Tables on this machine's disk (Parquet)."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import Schema, columns_of, conformed


def spark_path(place: Path) -> str:
    """The place as Spark takes it: on this machine's disk, whatever its default file system is.

    Not `as_uri`: Hadoop takes an escaped blank for part of the name."""
    return f"file://{place.absolute()}"


def read_table(spark: SparkSession, place: Path, schema: Schema) -> DataFrame:
    """The table there; its `schema` is not looked up in the files, of which there may be none."""
    found = spark.read.schema(columns_of(schema)).parquet(spark_path(place))
    return conformed(found, schema)
