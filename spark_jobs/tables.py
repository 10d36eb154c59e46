"""Tables of results in a folder."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from spark_jobs.runtime.frames import Location, Schema, conformed, local_rows

PROPERTIES: Final = {
    "delta.enableDeletionVectors": "true",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.dataSkippingNumIndexedCols": "4",
}
"""A row that goes is marked in a bitmap beside its file, which is not written anew. Least and
greatest values are kept of the first columns alone, by which files are passed over: those of all
columns take longer to find than it takes to write them."""
SIGNATURE: Final = "spark.databricks.delta.commitInfo.userMetadata"
LOG: Final = "_delta_log"
"""The folder within a table by which Delta knows it."""
FILE_BYTES: Final = 128 * 2**20
SMALL_BYTES: Final = 32 * 2**20
WHAT_TABLES_REST_ON: Final = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": "0.3",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
"""Small tables: Delta's own 50 tasks to read a log take longer than all that is in it. What is
small is put together; a file of which a third has gone is written anew. VACUUM lists a folder in as
many tasks as the last setting says: 10,000 otherwise, for two files, too."""


class Changes(NamedTuple):
    """version: the newest. others: who else than the one that signs now made one of them."""

    version: int
    others: frozenset[str]


class Tables:
    """Tables by name, each in a folder of the location. The names are the code's own."""

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self._spark, self._location = spark, location
        for name, value in WHAT_TABLES_REST_ON.items():
            spark.conf.set(name, value)

    def read(self, name: str, schema: Schema, version: int | None = None) -> DataFrame:
        """The table, in the columns of `schema`; no rows where there is none. `version`: as it was
        then."""
        if not self.has(name):
            return local_rows(self._spark, [], schema)
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return conformed(reader.load((self._location / name).uri), schema)

    def has(self, name: str) -> bool:
        """Whether the table is there."""
        place = self._location / name
        if place.folder:
            return (place.folder / LOG).is_dir()
        try:
            self._spark.read.format("delta").load(place.uri)
        except AnalysisException:
            return False
        return True

    def append(self, name: str, rows: DataFrame, folders: Sequence[str] = ()) -> None:
        """Add rows; the first make the table. `folders`: the columns that it has folders by."""
        self._writer(rows, "append", folders).save((self._location / name).uri)

    def replace(
        self, name: str, rows: DataFrame, folders: Sequence[str] = (), where: str | None = None
    ) -> None:
        """Put rows in the place of all, or of those that `where` (SQL) names: all of the new ones
        are such rows."""
        if not self.has(name):
            self.append(name, rows, folders)
            return
        writer = self._writer(rows, "overwrite", folders)
        if where:
            writer = writer.option("replaceWhere", where)
        writer.save((self._location / name).uri)

    def delete(self, name: str, where: str) -> None:
        """Delete the rows that `where` (SQL over the columns) names."""
        self._spark.sql(f"DELETE FROM {self._named(name)} WHERE {where}").collect()  # noqa: S608

    def delete_matching(self, name: str, others: DataFrame, where: str) -> None:
        """Delete the rows for which there is one of `others`: SQL over `here` and `there`."""
        merge = f"MERGE INTO {self._named(name)} AS here USING {{others}} AS there ON {where}"
        self._spark.sql(f"{merge} WHEN MATCHED THEN DELETE", others=others).collect()

    def version(self, name: str) -> int | None:
        """The newest version; None where there is no table."""
        if not self.has(name):
            return None
        (row,) = self._spark.sql(f"DESCRIBE HISTORY {self._named(name)} LIMIT 1").collect()
        return int(row.version)

    def changes(self, name: str, version: int | None) -> Changes:
        """Of a table that is there, what happened to it after that version."""
        history = self._spark.sql(f"DESCRIBE HISTORY {self._named(name)}")
        later = history.select("version", "userMetadata").where(f"version >= {version or 0}")
        rows = later.collect()
        authors = {row.userMetadata or "" for row in rows if row.version != version}
        own = self._spark.conf.get(SIGNATURE, "") or ""
        return Changes(max(row.version for row in rows), frozenset(authors - {own}))

    def sign(self, author: str) -> None:
        """Have this name beside all changes from now on."""
        self._spark.conf.set(SIGNATURE, author)

    def restore(self, name: str, version: int) -> None:
        """Make the table what it was at that version."""
        self._spark.sql(f"RESTORE TABLE {self._named(name)} TO VERSION AS OF {version}").collect()

    def tidy(self, name: str) -> None:
        """Put small files together, and remove those that no version needs any more."""
        self._spark.sql(f"OPTIMIZE {self._named(name)}").collect()
        self._spark.sql(f"VACUUM {self._named(name)}").collect()

    def files(self, name: str) -> int:
        """How many files it has."""
        (row,) = self._spark.sql(f"DESCRIBE DETAIL {self._named(name)}").collect()
        return int(row.numFiles)

    def _writer(self, rows: DataFrame, mode: str, folders: Sequence[str]) -> DataFrameWriter:
        found = rows.write.format("delta").mode(mode).options(**PROPERTIES)
        return found.partitionBy(*folders) if folders else found

    def _named(self, name: str) -> str:
        uri = (self._location / name).uri.replace("`", "``")
        return f"delta.`{uri}`"
