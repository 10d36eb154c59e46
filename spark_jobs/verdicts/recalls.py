"""Recalls name a record by its origin: so they have the subject of that record (`subjects`).

One that must prove that it knows the record, and does not, names nothing (docs/guide.md#recall).
"""

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


NEEDS_PROOF: Final = "request.needs_proof AND request.recalled IS NOT NULL"
_IS_PROVEN: Final = """
coalesce(xxhash64(known_key) = key_hash, false) OR coalesce(known_ident = ident, false)
"""


def without_unproven(histories: DataFrame, sighted: DataFrame) -> DataFrame:
    """Return the histories; a recall without the right proof then names no record.

    `sighted`: SIGHTED of every record. If nothing is known of a record, its recall counts as right.
    """
    place = ["partition", "offset"]
    asked = histories.filter(NEEDS_PROOF).selectExpr(
        *place, "request.recalled", "request.known_key", "request.known_ident"
    )
    names = f.broadcast(asked.select("partition", "recalled").distinct())
    alone = sighted.filter("key_hash IS NOT NULL").selectExpr(
        "partition", "offset AS recalled", "key_hash", "CAST(NULL AS binary) AS ident"
    )
    known = alone.join(names, ["partition", "recalled"]).unionByName(_as_named(histories))
    proven = asked.join(known, ["partition", "recalled"]).groupBy(*place)
    found = proven.agg(f.bool_or(f.expr(_IS_PROVEN)).alias("is_proven"))
    unproven = f.broadcast(found.filter("NOT is_proven"))
    nothing = f.col("request").withField("recalled", f.lit(None).cast("bigint"))
    request = f.when(f.col("is_proven").isNull(), f.col("request")).otherwise(nothing)
    marked = histories.join(unproven, place, "left").withColumn("request", request)
    return marked.select(*histories.columns)


def _as_named(histories: DataFrame) -> DataFrame:
    """Return key hash and id of records and half messages, by their own and their first offset."""
    origins = f"explode(array_distinct(array(offset, {first_written('request.')}))) AS recalled"
    return histories.filter("request.kind IN ('record', 'prepare')").selectExpr(
        "partition", origins, "request.ingress_key_hash AS key_hash", "request.ident"
    )
