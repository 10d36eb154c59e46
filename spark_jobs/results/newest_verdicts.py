"""What became of each record, by all audits that went on from one another."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.results.history import History
from spark_jobs.results.result_tables import AUDIT, VERDICTS_TABLE
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Schema
from spark_jobs.verdicts.evaluation import VERDICTS

NEWEST: Final[Schema] = {**AUDIT, **VERDICTS}
"""The newest verdict of each record, with the audit that gave it."""


def newest_of_chain(history: History) -> DataFrame:
    """Return NEWEST of the last audit there and those that it goes on from.

    Raises `ResultsRefused` where there is none.
    """
    names = history.last_chain()
    if not names:
        raise ResultsRefused(
            f"{history.place} does not hold the results of an audit.",
            "Name in --output where an audit wrote its results.",
        )
    given = history.tables.read(VERDICTS_TABLE, NEWEST).where(f.col("audit").isin(names))
    if len(names) == 1:
        return given
    nameless = given.where("partition IS NULL")
    newest = f.max(f.struct(*NEWEST)).alias("newest")
    placed = given.where("partition IS NOT NULL").groupBy("partition", "offset").agg(newest)
    return placed.select("newest.*").unionByName(nameless)
