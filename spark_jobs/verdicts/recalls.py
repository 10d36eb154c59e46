"""Recalls name a record by its origin: so they have the subject of that record (`subjects`)."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.subjects import SUBJECT, first_written, own_subject

SUBJECTS: Final = {"subject": SUBJECT, "recalled_first": "bigint"}
"""recalled_first: of a recall, the offset at which the record that it names was first written."""


def with_subjects(histories: DataFrame, *, has_recalls: bool) -> DataFrame:
    """The histories with SUBJECTS; a recall has the origin itself where what it names is not among
    them."""
    own = histories.selectExpr("*", f"{own_subject('request.')} AS own")
    if not has_recalls:
        found = own.selectExpr("*", "own AS subject", "CAST(NULL AS bigint) AS recalled_first")
        return found.drop("own")
    named = own.filter("request.kind IN ('record', 'prepare')").selectExpr(
        "partition",
        "offset AS recalled",
        "own AS of_named",
        f"{first_written('request.')} AS first",
    )
    asked = own.withColumn("recalled", f.col("request.recalled"))
    found = asked.join(named, ["partition", "recalled"], "left").selectExpr(
        "*", "coalesce(of_named, own) AS subject", "coalesce(first, recalled) AS recalled_first"
    )
    return found.select(*histories.columns, *SUBJECTS)
