"""Records that went on through the ingress: each step has exactly one successor, unchanged."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

GOES_ON: Final = ("rolled", "requeued")
SAME: Final = {
    "topic": "target",
    "partition": "target_partition",
    "due": "due_ms",
    "key": "key_hash",
    "value": "value_hash",
    "headers": "headers_hash",
}
"""What a successor has to ask for again, and the columns that say so."""
HOPS: Final = {
    "successors": "bigint",
    "successor": "bigint",
    "changed_in": "string",
    "came_from": "string",
}
"""Of a record that was rolled or re-queued: how many successors it has, the offset of the first,
and in what that differs. Of a successor: how the record ended that it names, null without one."""


def is_on_the_way() -> Column:
    """Whether a record goes on, or came from another one."""
    goes_on = f.coalesce(f.col("outcome.end").isin(*GOES_ON), f.lit(False))
    return goes_on | f.col("asked.hop_from").isNotNull()


def with_hops(cases: DataFrame) -> DataFrame:
    """`cases` (facts with chapters), all of which are on the way, with HOPS."""
    entry = f.coalesce(f.col("decision.offset"), f.col("offset"))
    found = cases.withColumn("entry_offset", entry)
    hop_from = f.col("asked.hop_from")
    arrived = found.filter(hop_from.isNotNull() & f.col("asked.kind").isin("record", "refused"))
    after = arrived.groupBy("partition", hop_from.alias("entry_offset")).agg(
        f.count("*").alias("successors"),
        f.min(f.struct("offset", "asked")).alias("next"),
    )
    before = found.select(
        "partition",
        f.col("entry_offset").alias("came_from_offset"),
        f.col("outcome.end").alias("came_from"),
    )
    going = found.join(after, ["partition", "entry_offset"], "left")
    came = going.withColumn("came_from_offset", hop_from)
    joined = came.join(before, ["partition", "came_from_offset"], "left")
    added = {
        "successors": f.coalesce(f.col("successors"), f.lit(0)),
        "successor": f.col("next.offset"),
        "changed_in": _changed(f.col("asked"), f.col("next.asked")),
        "came_from": f.coalesce(f.col("came_from"), f.col("asked.known_from")),
    }
    return joined.select(*cases.columns, *_as(added))


def without_hops(cases: DataFrame) -> DataFrame:
    """The same columns, for records none of which is on the way."""
    return cases.select("*", *_as({name: f.lit(None) for name in HOPS}))


def _as(columns: dict[str, Column]) -> list[Column]:
    return [columns[name].cast(kind).alias(name) for name, kind in HOPS.items()]


def _changed(asked: Column, successor: Column) -> Column:
    """What a successor does not ask for as the record did; empty if nothing, or if it is none."""
    is_judged = successor["kind"] == "record"
    parts = [
        f.when(~asked[column].eqNullSafe(successor[column]), f.lit(name))
        for name, column in SAME.items()
    ]
    return f.when(is_judged, f.concat_ws(", ", *parts)).otherwise("")
