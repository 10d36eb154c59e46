"""What the other topics say of ingress records: deliveries, dead letters, outcomes."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.fingerprints import bytes_hash, headers_hash, letter_hash, plain_hash
from spark_jobs.records.header_names import (
    DUE,
    ERROR,
    ERROR_DETAIL,
    FIRST_ORIGIN,
    ID,
    ORIGIN,
    PREFIX,
)
from spark_jobs.records.headers import how_many_ours, place_of, value_at
from spark_jobs.runtime.schemas import ENDS, conformed

DELIVERED: Final = "delivered"
DEAD_LETTER: Final = "dead-letter"
USUAL_STAMPS: Final = (ORIGIN, DUE)

OUTCOME_JSON: Final = (
    "origin string, outcome string, due bigint, id string, detail string, next_origin string"
)


def deliveries(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records (RECORDS) in targets. Who carries no `timer-origin`, or that of another
    ingress, came by another way and is left out."""
    named = _with_origin(records, ingress).withColumn("is_usual", _is_usually_stamped())
    headers = f.col("headers")
    users = f.slice(headers, 1, f.size(headers) - len(USUAL_STAMPS))
    return _ends_of(
        named,
        end=f.lit(DELIVERED),
        due_ms=_number(value_at(headers, place_of(headers, DUE))),
        first_origin=_text(headers, FIRST_ORIGIN),
        key_hash=bytes_hash(f.col("key")),
        value_hash=bytes_hash(f.col("value")),
        headers_hash=f.when(f.col("is_usual"), plain_hash(users)).otherwise(headers_hash(headers)),
        stamps=f.when(f.col("is_usual"), ",".join(USUAL_STAMPS)).otherwise(_stamps(headers)),
    )


def dead_letters(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the dead-letter topic. value_hash: null for a letter without value."""
    named = _with_origin(records, ingress)
    return _ends_of(
        named,
        end=f.lit(DEAD_LETTER),
        value_hash=f.when(f.col("value").isNotNull(), bytes_hash(f.col("value"))),
        letter_hash=letter_hash(f.col("key"), f.col("headers")),
        code=_text(f.col("headers"), ERROR),
        detail=_text(f.col("headers"), ERROR_DETAIL),
        ident=value_at(f.col("headers"), place_of(f.col("headers"), ID)),
    )


def outcomes(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the outcome topic."""
    said = f.col("said")
    read = records.withColumn("said", f.from_json(f.col("value").cast("string"), OUTCOME_JSON))
    named = _at_origin(read, said["origin"], ingress)
    return _ends_of(
        named,
        end=f.coalesce(said["outcome"], f.lit("unreadable")),
        due_ms=said["due"],
        detail=said["detail"],
        ident=said["id"].cast("binary"),
        next_offset=_offset_in(said["next_origin"]),
    )


def _with_origin(records: DataFrame, ingress: str) -> DataFrame:
    headers = f.col("headers")
    stamped = records.withColumn("origin_at", place_of(headers, ORIGIN)).filter("origin_at > 0")
    origin = value_at(headers, f.col("origin_at")).cast("string")
    return _at_origin(stamped, origin, ingress)


def _is_usually_stamped() -> Column:
    """Whether the two stamps that most deliveries have, and nothing else of ours, come last."""
    headers, origin_at = f.col("headers"), f.col("origin_at")
    is_in_order = (origin_at == f.size(headers) - 1) & (place_of(headers, DUE) == origin_at + 1)
    return is_in_order & (how_many_ours(headers) == len(USUAL_STAMPS))


def _text(headers: Column, name: str) -> Column:
    return value_at(headers, place_of(headers, name)).cast("string")


def _at_origin(records: DataFrame, origin: Column, ingress: str) -> DataFrame:
    """With the ingress record's place; null where the origin is none at all."""
    named = records.withColumn("origin", f.coalesce(origin, f.lit("")))
    text = f.col("origin")
    offset, topic = f.substring_index(text, "/", -1), f.substring_index(text, "/", 1)
    place = f.substring_index(text, "/", -2)
    is_origin = f.octet_length(topic) + f.octet_length(place) + 1 == f.octet_length(text)
    is_anothers = is_origin & (topic != ingress)
    number = f.when(is_origin, f.substring_index(place, "/", 1).try_cast("int"))
    return (
        named.filter(~is_anothers)
        .withColumn("origin_offset", f.when(is_origin, offset.try_cast("bigint")))
        .withColumn("origin_partition", f.when(f.col("origin_offset").isNotNull(), number))
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
