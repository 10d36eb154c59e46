"""How records ended."""

from functools import cache, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.previous_audit import REQUESTS
from spark_jobs.records.hashes import (
    FINGERPRINTS,
    bytes_hash,
    content_bytes,
    headers_bytes,
    headers_hash,
    is_bare_letter,
    letter_hash,
    plain_hash,
)
from spark_jobs.records.headers import (
    CHECK,
    DUE,
    ERROR,
    ERROR_DETAIL,
    FIRST_ORIGIN,
    ID,
    ORIGIN,
    PREFIX,
    TRANSACTION,
    count_of_own,
    position_of,
    value_at,
)
from spark_jobs.runtime.frames import Schema, conformed

# Check-backs: what the proxy has written to the topics in which it asks about half messages.

CHECK_BACKS: Final[Schema] = {
    "topic": "string",
    "ident": "binary",
    "number": "bigint",
    "at_ms": "bigint",
    "key_hash": "bigint",
    "value_hash": "bigint",
    "headers_hash": "bigint",
    "stamps": "string",
}
"""A row for each check-back: whom it asks about, which check it is, and what it shows of the half
message. stamps: the names of its own `timer-` headers."""
ASKING: Final = b"check"


def check_backs(records: DataFrame) -> DataFrame:
    """CHECK_BACKS among the records (RECORDS) of check topics."""
    headers = f.col("headers")
    asking = records.filter(_check_header(TRANSACTION) == f.lit(ASKING))
    own = f.filter(headers, lambda header: header["key"].startswith(PREFIX))
    found = asking.withColumns(
        {
            "ident": _check_header(ID),
            "number": _check_header(CHECK).cast("string").try_cast("bigint"),
            "key_hash": bytes_hash(f.col("key")),
            "value_hash": bytes_hash(f.col("value")),
            "headers_hash": headers_hash(headers),
            "stamps": f.array_join(own["key"], ","),
        }
    )
    return conformed(found, CHECK_BACKS, {"at_ms": "timestamp_ms"})


def _check_header(name: str) -> Column:
    headers = f.col("headers")
    return value_at(headers, position_of(headers, name))


# The ends of ingress records in the other topics: deliveries, dead letters, outcomes.

ENDS: Final[Schema] = {
    "partition": "int",
    "offset": "bigint",
    "end": "string",
    "topic": "string",
    "at_partition": "int",
    "at_offset": "bigint",
    "at_ms": "bigint",
    "due_ms": "bigint",
    "first_origin": "string",
    **FINGERPRINTS,
    "code": "string",
    "detail": "string",
    "ident": "binary",
    "next_offset": "bigint",
    "stamps": "string",
    "is_bare": "boolean",
    "size_bytes": "bigint",
    "is_attested": "boolean",
}
"""Each record of a target, dead-letter or outcome topic, by the ingress record that it names.

end: delivered, dead-letter, or the outcome's name. is_bare: a dead letter of origin and reason
alone. size_bytes: of a delivery's key and value; of a dead letter's headers. is_attested: whether
`at_ms` is the broker's time."""

DELIVERED: Final = "delivered"
DEAD_LETTER: Final = "dead-letter"
CONTROL_OUTCOMES: Final = ("applied", "missed")
HOP_OUTCOMES: Final = ("rolled", "requeued")
"""Of a record that goes on in the ingress as another one, its successor; what is moved may be
`replaced`, too."""
OUTCOMES: Final = (
    *("cancelled", "replaced", "dead-lettered", "rolled-back", "expired"),
    *HOP_OUTCOMES,
    *CONTROL_OUTCOMES,
)
"""docs/guide.md#outcomes"""
IS_SHED: Final = (
    "coalesce(outcome.end = 'dead-lettered'"
    " AND outcome.detail LIKE 'too-many: %(admission.%', false)"
)
"""SQL: whether an outcome says that its record found no room to wait. Only older versions of the
proxy wrote such outcomes."""

USUAL_STAMPS: Final = (ORIGIN, DUE)
OUTCOME_JSON: Final = (
    "origin string, outcome string, due bigint, id string, detail string, next_origin string"
)
UNREADABLE_OUTCOME: Final = "unreadable"


def deliveries(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records (RECORDS) in targets. A record without `timer-origin`, or with that of
    another ingress, did not come through this proxy and is left out."""
    return _ends(_with_origin_header(records), ingress, _of_delivery())


def dead_letters(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the dead-letter topic. value_hash: null for a letter without value."""
    return _ends(_with_origin_header(records), ingress, _of_dead_letter())


def outcomes(records: DataFrame, ingress: str) -> DataFrame:
    """ENDS of the records in the outcome topic."""
    json = f.from_json(f.col("value").cast("string"), OUTCOME_JSON)
    read = records.withColumn("json", json).withColumn("origin", f.col("json.origin"))
    return _ends(read, ingress, _of_outcome())


def all_of(*frames: DataFrame) -> DataFrame:
    """The ENDS of several topics together."""
    return reduce(DataFrame.unionByName, frames)


@cache
def _of_delivery() -> dict[str, Column]:
    headers = f.col("headers")
    is_usual, count = f.col("is_usual"), f.size(headers) - len(USUAL_STAMPS)
    of_users = plain_hash(f.slice(headers, 1, count))
    return {
        "end": f.lit(DELIVERED),
        "size_bytes": content_bytes(f.col("key"), f.col("value"), f.col("large_bytes")),
        "due_ms": _text(DUE).try_cast("bigint"),
        "first_origin": _text(FIRST_ORIGIN),
        "key_hash": bytes_hash(f.col("key")),
        "value_hash": bytes_hash(f.col("value")),
        "headers_hash": f.when(is_usual, of_users).otherwise(headers_hash(headers)),
        "stamps": f.when(is_usual, ",".join(USUAL_STAMPS)).otherwise(_stamps()),
    }


@cache
def _of_dead_letter() -> dict[str, Column]:
    value = f.col("value")
    return {
        "end": f.lit(DEAD_LETTER),
        "size_bytes": headers_bytes(f.col("headers")),
        "value_hash": f.when(value.isNotNull(), bytes_hash(value)),
        "letter_hash": letter_hash(f.col("key"), f.col("headers")),
        "is_bare": is_bare_letter(f.col("key"), value, f.col("headers")),
        "code": _text(ERROR),
        "detail": _text(ERROR_DETAIL),
        "ident": _value(ID),
    }


@cache
def _of_outcome() -> dict[str, Column]:
    next_offset = f.try_element_at(f.split("json.next_origin", "/"), f.lit(3))
    return {
        "end": f.coalesce("json.outcome", f.lit(UNREADABLE_OUTCOME)),
        "due_ms": f.col("json.due"),
        "detail": f.col("json.detail"),
        "ident": f.col("json.id").cast("binary"),
        "next_offset": next_offset.try_cast("bigint"),
    }


def _with_origin_header(records: DataFrame) -> DataFrame:
    """is_usual: the two stamps that most deliveries have, and nothing else of ours, come last."""
    headers, origin_at = f.col("headers"), f.col("origin_at")
    is_last = (origin_at == f.size(headers) - 1) & (position_of(headers, DUE) == origin_at + 1)
    stamped = records.withColumn("origin_at", position_of(headers, ORIGIN)).filter("origin_at > 0")
    return stamped.withColumns(
        {
            "origin": value_at(headers, origin_at).cast("string"),
            "is_usual": is_last & (count_of_own(headers) == len(USUAL_STAMPS)),
        }
    )


def _ends(records: DataFrame, ingress: str, columns: dict[str, Column]) -> DataFrame:
    """ENDS: where the records are, and these columns; null in all others.

    partition and offset are null where `origin` is not `topic/partition/offset` at all.
    """
    parts = records.withColumn("origin", f.expr("coalesce(origin, '')")).selectExpr(
        "*",
        "substring_index(origin, '/', 1) AS origin_topic",
        "substring_index(origin, '/', -2) AS origin_place",
    )
    whole = parts.selectExpr(
        "*",
        "octet_length(origin_topic) + octet_length(origin_place) + 1 = octet_length(origin)"
        " AS is_origin",
    ).filter(~f.col("is_origin") | (f.col("origin_topic") == ingress))
    offset = "IF(is_origin, try_cast(substring_index(origin, '/', -1) AS bigint), NULL)"
    number = "try_cast(substring_index(origin_place, '/', 1) AS int)"
    found = whole.withColumn("origin_offset", f.expr(offset)).withColumns(
        {f"end_{name}": column for name, column in columns.items()}
    )
    places = {
        "partition": f"IF(origin_offset IS NOT NULL, {number}, NULL)",
        "offset": "origin_offset",
        "at_partition": "partition",
        "at_offset": "offset",
        "at_ms": "timestamp_ms",
        "is_attested": "is_attested",
        "topic": "topic",
    }
    given = {name: f"end_{name}" for name in columns}
    return conformed(found, ENDS, {**dict.fromkeys(ENDS, "NULL"), **places, **given})


def _value(name: str) -> Column:
    headers = f.col("headers")
    return value_at(headers, position_of(headers, name))


def _text(name: str) -> Column:
    return _value(name).cast("string")


def _stamps() -> Column:
    own = f.filter("headers", lambda header: header["key"].startswith(PREFIX))
    return f.concat_ws(",", f.transform(own, lambda header: header["key"]))


# Each ingress record beside everything that names it: one row a record.

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
