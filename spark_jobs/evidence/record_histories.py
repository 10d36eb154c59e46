"""Each ingress record beside everything that names it: one row a record."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import DEAD_LETTER, DELIVERED, ENDS
from spark_jobs.evidence.previous_audit import REQUESTS

PLACE: Final = ("partition", "offset")
NOT_COMPARED: Final = ("target_key",)
"""Of a request: its fingerprint does, and is shorter."""
KINDS_OF_END: Final = {"delivery": "deliveries", "outcome": "outcomes", "letter": "letters"}
"""The columns with the earliest end of each kind, and with how many there are."""


def record_histories(requests: DataFrame, ends: DataFrame) -> DataFrame:
    """By place: `request` (REQUESTS but place and key), null where there is no such ingress record;
    `delivery`, `outcome`, `letter` (ENDS but the place): the earliest of each, null if there is
    none; how many `deliveries`, `outcomes`, `letters`; `last_outcome`: the name of another.

    Ends that name no place at all have a row each, with a null place."""
    fields = [name for name in REQUESTS if name not in {*PLACE, *NOT_COMPARED}]
    asked = requests.select(*PLACE, f.struct(*fields).alias("request"))
    found = asked.join(_by_place(ends), [*PLACE], "full_outer")
    counts = {name: f.coalesce(name, f.lit(0)) for name in KINDS_OF_END.values()}
    return found.withColumns(counts).drop("alone")


def _by_place(ends: DataFrame) -> DataFrame:
    """One row a place: laid out by place once, for this and for the join."""
    by_time = ["at_ms", *(name for name in ENDS if name not in {*PLACE, "at_ms"})]
    rows = ends.repartition(*PLACE).select(
        *PLACE,
        f.struct(*by_time).alias("end"),
        f.expr("IF(partition IS NULL, struct(topic, at_partition, at_offset), NULL)").alias(
            "alone"
        ),
    )
    is_delivery, is_letter = (f"end.end = '{name}'" for name in (DELIVERED, DEAD_LETTER))
    outcome = _end_where(f"NOT ({is_delivery} OR {is_letter})")
    return rows.groupBy(*PLACE, "alone").agg(
        *_earliest_and_count("delivery", _end_where(is_delivery)),
        *_earliest_and_count("outcome", outcome),
        *_earliest_and_count("letter", _end_where(is_letter)),
        f.max(outcome["end"]).alias("last_outcome"),
    )


def _end_where(condition: str) -> Column:
    return f.expr(f"IF({condition}, end, NULL)")


def _earliest_and_count(kind: str, end: Column) -> list[Column]:
    return [f.min(end).alias(kind), f.count(end).alias(KINDS_OF_END[kind])]
