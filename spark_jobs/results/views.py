"""Views for SQL over the audits of a place.

audits      AUDITS: each complete audit
chain       the same, of the last audit and those that it goes on from
verdicts    VERDICTS with AUDIT, all that complete audits gave
newest      the same, the newest of each record of the chain: what became of it
violations  VIOLATION with AUDIT
lateness    how late the deliveries in `verdicts` were: FIGURES by AUDIT, target and minute_ms
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.results.history import History
from spark_jobs.results.lateness_figures import by_minute
from spark_jobs.results.newest_verdicts import newest_of_chain
from spark_jobs.results.result_tables import (
    AUDIT,
    VERDICTS_TABLE,
    VIOLATION,
    VIOLATIONS_TABLE,
)
from spark_jobs.runtime.frames import Schema
from spark_jobs.runtime.location import Location
from spark_jobs.verdicts.evaluation import VERDICTS


def register_views(spark: SparkSession, place: Location) -> None:
    """Make the views in the session, over what the place holds now.

    Raises `ResultsRefused` where there is no audit."""
    for name, frame in views(spark, place).items():
        frame.createOrReplaceTempView(name)


def views(spark: SparkSession, place: Location) -> dict[str, DataFrame]:
    """What each view shows, by name."""
    history = History(spark, place)
    audits = history.audits

    def complete(table: str, schema: Schema) -> DataFrame:
        rows = history.tables.read(table, {**AUDIT, **schema})
        return rows.join(audits.select("audit"), "audit", "left_semi")

    verdicts = complete(VERDICTS_TABLE, VERDICTS)
    return {
        "newest": newest_of_chain(history),
        "audits": audits,
        "chain": audits.where(f.col("audit").isin(history.last_chain())),
        "verdicts": verdicts,
        "violations": complete(VIOLATIONS_TABLE, VIOLATION),
        "lateness": by_minute(verdicts, *AUDIT),
    }
