"""Delta tables of results in a location."""

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
"""DeletionVectors: deleted rows are marked in a bitmap, and their files stay.
DataSkipping: Spark skips files by statistics of their first columns. Statistics of all columns
would take longer than writing.
"""
SIGNATURE: Final = "spark.databricks.delta.commitInfo.userMetadata"
LOG: Final = "_delta_log"
"""A folder with this subfolder is a Delta table."""
FILE_BYTES: Final = 128 * 2**20
SMALL_BYTES: Final = 32 * 2**20
WHAT_TABLES_REST_ON: Final = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": "0.3",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
"""Settings for small tables.
snapshotPartitions: by default 50 tasks read Delta's log, which is slow for a small log. optimize:
small files are merged. A file is rewritten if 30 % of its rows are deleted. parallelism: VACUUM
lists a folder in this many tasks, 10,000 by default.
"""


class Changes(NamedTuple):
    """The newest version of a table, and the names (`sign`) of other audits that changed it."""

    version: int
    others: frozenset[str]


class Tables:
    """Tables by name, each in a folder of the location."""

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self._spark, self._location = spark, location
        for name, value in WHAT_TABLES_REST_ON.items():
            spark.conf.set(name, value)

    def read(self, name: str, schema: Schema, version: int | None = None) -> DataFrame:
        """Return the table with the columns of `schema`. A missing table has no rows."""
        if not self.has(name):
            return local_rows(self._spark, [], schema)
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return conformed(reader.load((self._location / name).uri), schema)

    def has(self, name: str) -> bool:
        place = self._location / name
        if place.folder:
            return (place.folder / LOG).is_dir()
        try:
            self._spark.read.format("delta").load(place.uri)
        except AnalysisException:
            return False
        return True

    def append(self, name: str, rows: DataFrame, folders: Sequence[str] = ()) -> None:
        """Add rows. Create the table if needed, partitioned by the columns `folders`."""
        self._writer(rows, "append", folders).save((self._location / name).uri)

    def replace(self, name: str, rows: DataFrame, folders: Sequence[str] = ()) -> None:
        mode = "overwrite" if self.has(name) else "append"
        self._writer(rows, mode, folders).save((self._location / name).uri)

    def delete(self, name: str, where: str) -> None:
        self._spark.sql(f"DELETE FROM {self._named(name)} WHERE {where}").collect()  # noqa: S608

    def delete_matching(self, name: str, others: DataFrame, where: str) -> None:
        """Delete rows (`here`) that match a row of `others` (`there`). `where`: the condition."""
        merge = f"MERGE INTO {self._named(name)} AS here USING {{others}} AS there ON {where}"
        self._spark.sql(f"{merge} WHEN MATCHED THEN DELETE", others=others).collect()

    def version(self, name: str) -> int | None:
        if not self.has(name):
            return None
        (row,) = self._spark.sql(f"DESCRIBE HISTORY {self._named(name)} LIMIT 1").collect()
        return int(row.version)

    def changes(self, name: str, version: int | None) -> Changes:
        """Return the changes to an existing table after that version."""
        history = self._spark.sql(f"DESCRIBE HISTORY {self._named(name)}")
        later = history.select("version", "userMetadata").where(f"version >= {version or 0}")
        rows = later.collect()
        authors = {row.userMetadata or "" for row in rows if row.version != version}
        own = self._spark.conf.get(SIGNATURE, "") or ""
        return Changes(max(row.version for row in rows), frozenset(authors - {own}))

    def sign(self, author: str) -> None:
        self._spark.conf.set(SIGNATURE, author)

    def restore(self, name: str, version: int) -> None:
        self._spark.sql(f"RESTORE TABLE {self._named(name)} TO VERSION AS OF {version}").collect()

    def tidy(self, name: str) -> None:
        """Merge small files, and remove files that no version needs."""
        self._spark.sql(f"OPTIMIZE {self._named(name)}").collect()
        self._spark.sql(f"VACUUM {self._named(name)}").collect()

    def files(self, name: str) -> int:
        (row,) = self._spark.sql(f"DESCRIBE DETAIL {self._named(name)}").collect()
        return int(row.numFiles)

    def _writer(self, rows: DataFrame, mode: str, folders: Sequence[str]) -> DataFrameWriter:
        found = rows.write.format("delta").mode(mode).options(**PROPERTIES)
        return found.partitionBy(*folders) if folders else found

    def _named(self, name: str) -> str:
        uri = (self._location / name).uri.replace("`", "``")
        return f"delta.`{uri}`"
