"""What the other topics say of ingress records: deliveries, dead letters, outcomes."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.hashes import bytes_hash, headers_hash, letter_hash
from spark_jobs.header_names import DUE, ERROR, ERROR_DETAIL, FIRST_ORIGIN, ID, ORIGIN, PREFIX
from spark_jobs.schemas import ENDS, conformed

DELIVERED: Final = "delivered"
DEAD_LETTER: Final = "dead-letter"

OUTCOME_JSON: Final = (
    "origin string, outcome string, due bigint, id string, detail string, next_origin string"
)


def deliveries(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records (RECORDS) in targets. Who carries no `timer-origin`, or that of another
    ingress, came by another way and is left out."""
    named = _with_origin(records, ingress)
    return _ends_of(
        named,
        end=f.lit(DELIVERED),
        due_ms=_number(named["said"][DUE]),
        first_origin=named["said"][FIRST_ORIGIN].cast("string"),
        key_hash=bytes_hash(named["key"]),
        value_hash=bytes_hash(named["value"]),
        headers_hash=headers_hash(named["headers"]),
        stamps=_stamps(named["headers"]),
    )


def dead_letters(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the dead-letter topic. value_hash: null for a letter without value."""
    named = _with_origin(records, ingress)
    return _ends_of(
        named,
        end=f.lit(DEAD_LETTER),
        value_hash=f.when(named["value"].isNotNull(), bytes_hash(named["value"])),
        letter_hash=letter_hash(named["key"], named["headers"]),
        code=named["said"][ERROR].cast("string"),
        detail=named["said"][ERROR_DETAIL].cast("string"),
        ident=named["said"][ID],
    )


def outcomes(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the outcome topic."""
    text = records["value"].cast("string")
    said = records.withColumn("said", f.from_json(text, OUTCOME_JSON))
    named = _at_origin(said, said["said"]["origin"], ingress)
    return _ends_of(
        named,
        end=f.coalesce(named["said"]["outcome"], f.lit("unreadable")),
        due_ms=named["said"]["due"],
        detail=named["said"]["detail"],
        ident=named["said"]["id"].cast("binary"),
        next_offset=_offset_in(named["said"]["next_origin"]),
    )


def _with_origin(records: DataFrame, ingress: str) -> DataFrame:
    said = records.withColumn("said", f.map_from_entries("headers"))
    stamped = said.filter(f.map_contains_key("said", f.lit(ORIGIN)))
    return _at_origin(stamped, stamped["said"][ORIGIN].cast("string"), ingress)


def _at_origin(records: DataFrame, origin: Column, ingress: str) -> DataFrame:
    """With the ingress record's place; null where the origin is none at all."""
    parts = f.split(f.coalesce(origin, f.lit("")), "/")
    is_origin = f.size(parts) == 3
    is_anothers = is_origin & (parts[0] != ingress)
    partition = f.when(is_origin, f.try_element_at(parts, f.lit(2)).try_cast("int"))
    return (
        records.filter(~is_anothers)
        .withColumn("origin_offset", _offset_in(origin))
        .withColumn("origin_partition", f.when(f.col("origin_offset").isNotNull(), partition))
    )


def _offset_in(origin: Column) -> Column:
    """The offset in `topic/partition/offset`; null where there is none."""
    return f.try_element_at(f.split(origin, "/"), f.lit(3)).try_cast("bigint")


def _number(raw: Column) -> Column:
    return raw.cast("string").try_cast("bigint")


def _stamps(headers: Column) -> Column:
    own = f.filter(headers, lambda header: header["key"].startswith(PREFIX))
    return f.concat_ws(",", f.transform(own, lambda header: header["key"]))


def _ends_of(records: DataFrame, **said: Column) -> DataFrame:
    """ENDS: where the records are, and what is said; null in all other columns."""
    places = {
        "partition": f.col("origin_partition"),
        "offset": f.col("origin_offset"),
        "topic": f.col("topic"),
        "at_partition": f.col("partition"),
        "at_offset": f.col("offset"),
        "at_ms": f.col("timestamp_ms"),
    }
    found = {name: f.lit(None) for name in ENDS} | places | said
    return conformed(records.select([c.alias(name) for name, c in found.items()]), ENDS)


def all_of(*frames: DataFrame) -> DataFrame:
    """The ENDS of several topics together."""
    return reduce(DataFrame.unionByName, frames)
