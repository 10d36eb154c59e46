"""Each ingress record beside everything that names it: one row a record."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import DEAD_LETTER, DELIVERED
from spark_jobs.runtime.schemas import ENDS, REQUESTS, Schema

PLACE: Final = ("partition", "offset")
BULKY: Final = ("target_key",)
LONE_FIELDS: Final = ("topic", "at_partition", "at_offset")
"""What keeps ends apart that name no place: where they are themselves."""
FIRST: Final = "at_ms"
"""Of several ends the earliest is shown."""
COUNTS: Final = ("deliveries", "outcomes", "letters")


def facts(asked: DataFrame, ends: DataFrame) -> DataFrame:
    """By place: `asked` (REQUESTS but place and key), null where there is no such ingress record;
    `delivery`, `outcome`, `letter` (ENDS but the place): the earliest of each, null if there is
    none; how many `deliveries`, `outcomes`, `letters`; `last_outcome`: the name of another.

    Ends that name no place at all have a row each, with a null place."""
    requests = asked.select(*PLACE, f.struct(*_rest(REQUESTS)).alias("asked"))
    found = requests.join(_by_place(ends), [*PLACE], "full_outer")
    counts = {name: f.coalesce(f.col(name), f.lit(0)) for name in COUNTS}
    return found.withColumns(counts).drop("lone")


def _by_place(ends: DataFrame) -> DataFrame:
    """One row a place: laid out by place once, for this and for the join."""
    end_fields = [FIRST, *(name for name in ENDS if name not in {*PLACE, FIRST})]
    rows = ends.repartition(*PLACE).select(
        *PLACE,
        f.struct(*end_fields).alias("end"),
        f.when(f.col("partition").isNull(), f.struct(*LONE_FIELDS)).alias("lone"),
    )
    delivery, letter = _ends_named(DELIVERED), _ends_named(DEAD_LETTER)
    outcome = f.when(~f.col("end.end").isin(DELIVERED, DEAD_LETTER), f.col("end"))
    return rows.groupBy(*PLACE, "lone").agg(
        f.min(delivery).alias("delivery"),
        f.count(delivery).alias("deliveries"),
        f.min(outcome).alias("outcome"),
        f.count(outcome).alias("outcomes"),
        f.max(outcome["end"]).alias("last_outcome"),
        f.min(letter).alias("letter"),
        f.count(letter).alias("letters"),
    )


def _ends_named(name: str) -> Column:
    return f.when(f.col("end.end") == name, f.col("end"))


def _rest(schema: Schema) -> list[str]:
    return [name for name in schema if name not in {*PLACE, *BULKY}]
