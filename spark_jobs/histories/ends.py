"""Ends of records, and record histories: each request with all ends that name it."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.hashes import (
    FINGERPRINTS,
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
    value_of,
)
from spark_jobs.requests.parsing import PARSED
from spark_jobs.runtime.frames import Schema, conformed

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
"""A check-back, which repeats a half message. `stamps`: the names of its `timer-` headers."""
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
"""Ends: records of targets, dead-letter and outcome topics, which name their ingress record.
`partition`, `offset`: of the ingress record; null if the origin is unreadable. `end`: delivered,
dead-letter, or the outcome's name. `is_bare`: a dead letter with only origin and reason.
`size_bytes`: of key and value of a delivery, or of a dead letter's headers. `is_attested`: whether
`at_ms` is the broker's time.
"""
DELIVERED: Final = "delivered"
DEAD_LETTER: Final = "dead-letter"
CONTROL_OUTCOMES: Final = ("applied", "missed")
HOP_OUTCOMES: Final = ("rolled", "requeued")
"""Outcomes of records with a successor. A record moved to another due has `replaced` instead."""
OUTCOMES: Final = (
    *("cancelled", "replaced", "dead-lettered", "rolled-back", "expired"),
    *HOP_OUTCOMES,
    *CONTROL_OUTCOMES,
)
USUAL_STAMPS: Final = f"{ORIGIN},{DUE}"
UNREADABLE_OUTCOME: Final = "unreadable"
_OUTCOME_JSON: Final = (
    "origin string, outcome string, due bigint, id string, detail string, next_origin string"
)
_STAMPS: Final = f"""
concat_ws(',', filter(headers.key, name -> startswith(name, '{PREFIX}')))
"""


def _value(name: str) -> str:
    return value_of("headers", name)


def _text(name: str) -> str:
    return f"CAST({value_of('headers', name)} AS string)"


_OF_CHECK_BACK: Final = {
    "ident": _value(ID),
    "number": f"try_cast({_text(CHECK)} AS bigint)",
    "at_ms": "timestamp_ms",
    "key_hash": "xxhash64(key)",
    "value_hash": "xxhash64(value)",
    "headers_hash": headers_hash("headers"),
    "stamps": _STAMPS,
}
_OF_DELIVERY: Final = {
    "end": f"'{DELIVERED}'",
    "size_bytes": content_bytes("key", "value", "large_bytes"),
    "due_ms": f"try_cast({_text(DUE)} AS bigint)",
    "first_origin": _text(FIRST_ORIGIN),
    "key_hash": "xxhash64(key)",
    "value_hash": "xxhash64(value)",
    "headers_hash": f"""
      IF(is_usual, {plain_hash("slice(headers, 1, size(headers) - 2)")},
        {headers_hash("headers")})""",
    "stamps": f"IF(is_usual, '{USUAL_STAMPS}', {_STAMPS})",
}
_OF_DEAD_LETTER: Final = {
    "end": f"'{DEAD_LETTER}'",
    "size_bytes": headers_bytes("headers"),
    "value_hash": "IF(value IS NULL, NULL, xxhash64(value))",
    "letter_hash": letter_hash("key", "headers"),
    "is_bare": is_bare_letter("key", "value", "headers"),
    "code": _text(ERROR),
    "detail": _text(ERROR_DETAIL),
    "ident": _value(ID),
}
_OF_OUTCOME: Final = {
    "end": f"coalesce(json.outcome, '{UNREADABLE_OUTCOME}')",
    "due_ms": "json.due",
    "detail": "json.detail",
    "ident": "CAST(json.id AS binary)",
    "next_offset": "try_cast(try_element_at(split(json.next_origin, '/'), 3) AS bigint)",
}
_IS_USUAL: Final = f"""
origin_at = size(headers) - 1 AND array_position(headers.key, '{DUE}') = origin_at + 1
  AND {count_of_own("headers")} = 2
"""
"""Whether the last headers are origin and due, and there is no other `timer-` header."""


def check_backs(records: DataFrame) -> DataFrame:
    """Return CHECK_BACKS among RECORDS of check topics."""
    asking = records.filter(f"{_value(TRANSACTION)} = CAST('check' AS binary)")
    return conformed(asking, CHECK_BACKS, _OF_CHECK_BACK)


def deliveries(records: DataFrame, ingress: str) -> DataFrame:
    """Return ENDS of RECORDS in targets. Records without an origin in our ingress are skipped."""
    return _ends(_stamped(records), ingress, _OF_DELIVERY)


def dead_letters(records: DataFrame, ingress: str) -> DataFrame:
    """Return ENDS of dead letters. `value_hash` is null without a value."""
    return _ends(_stamped(records), ingress, _OF_DEAD_LETTER)


def outcomes(records: DataFrame, ingress: str) -> DataFrame:
    """Return ENDS of outcomes."""
    json = f"from_json(CAST(value AS string), '{_OUTCOME_JSON}') AS json"
    read = records.selectExpr("*", json).selectExpr("*", "json.origin AS origin")
    return _ends(read, ingress, _OF_OUTCOME)


def all_of(*frames: DataFrame) -> DataFrame:
    """Return the union of several ENDS."""
    return reduce(DataFrame.unionByName, frames)


def _stamped(records: DataFrame) -> DataFrame:
    found = records.selectExpr("*", f"array_position(headers.key, '{ORIGIN}') AS origin_at")
    stamped = found.filter("origin_at > 0")
    return stamped.selectExpr("*", f"{_text(ORIGIN)} AS origin", f"{_IS_USUAL} AS is_usual")


def _ends(records: DataFrame, ingress: str, columns: Mapping[str, str]) -> DataFrame:
    parts = records.withColumn("origin", f.expr("coalesce(origin, '')")).selectExpr(
        "*",
        "substring_index(origin, '/', 1) AS origin_topic",
        "substring_index(origin, '/', -2) AS origin_place",
    )
    size = "octet_length(origin_topic) + octet_length(origin_place) + 1 = octet_length(origin)"
    offset = "IF(is_origin, try_cast(substring_index(origin, '/', -1) AS bigint), NULL)"
    number = "try_cast(substring_index(origin_place, '/', 1) AS int)"
    whole = (
        parts.selectExpr("*", f"{size} AS is_origin")
        .filter(~f.col("is_origin") | (f.col("origin_topic") == ingress))
        .selectExpr("*", f"{offset} AS origin_offset")
    )
    places = {
        "partition": f"IF(origin_offset IS NOT NULL, {number}, NULL)",
        "offset": "origin_offset",
        "topic": "topic",
        "at_partition": "partition",
        "at_offset": "offset",
        "at_ms": "timestamp_ms",
        "is_attested": "is_attested",
    }
    return conformed(whole, ENDS, {**dict.fromkeys(ENDS, "NULL"), **places, **columns})


KNOWN: Final[Schema] = {
    "known_verdict": "string",
    "known_ends": "bigint",
    "known_from": "string",
    "known_first_ms": "bigint",
    "known_to_others": "boolean",
}
"""Findings of an earlier audit about a record that it left open.
`known_ends`: the number of its ends. `known_from`: the outcome of its predecessor.
`known_first_ms`: its earliest possible delivery. `known_to_others`: whether verdicts of other
records were based on it.
"""
REQUESTS: Final[Schema] = {**PARSED, **KNOWN}
"""PARSED and KNOWN. KNOWN is null for a record that is read for the first time."""
PLACE: Final = ("partition", "offset")
"""The place of a record in the ingress."""
NOT_COMPARED: Final = ("target_key",)
"""Columns that histories leave out, because only the fingerprints of their values are compared."""
KINDS_OF_END: Final = {"delivery": "deliveries", "outcome": "outcomes", "letter": "letters"}
"""For each kind of end: the column of the earliest end, and the column with the number of ends."""


def record_histories(requests: DataFrame, ends: DataFrame) -> DataFrame:
    """Return the history of each record, by PLACE.
    `request`: REQUESTS without PLACE and key; null if the ingress has no such record. `delivery`,
    `outcome`, `letter`: the earliest end of each kind (ENDS without PLACE). `deliveries`,
    `outcomes`, `letters`: the number of ends of each kind. `last_outcome`: the alphabetically last
    outcome. Each end with an unreadable origin has a row of its own.
    """
    fields = [name for name in REQUESTS if name not in {*PLACE, *NOT_COMPARED}]
    asked = requests.select(*PLACE, f.struct(*fields).alias("request"))
    found = asked.join(_by_place(ends), [*PLACE], "full_outer")
    counts = {name: f.coalesce(name, f.lit(0)) for name in KINDS_OF_END.values()}
    return found.withColumns(counts).drop("alone")


def _by_place(ends: DataFrame) -> DataFrame:
    """Return one row for each PLACE, partitioned by PLACE for the join with the requests."""
    by_time = ["at_ms", *(name for name in ENDS if name not in {*PLACE, "at_ms"})]
    rows = ends.repartition(*PLACE).selectExpr(
        *PLACE,
        f"struct({', '.join(f'`{name}`' for name in by_time)}) AS `end`",
        "IF(partition IS NULL, struct(topic, at_partition, at_offset), NULL) AS alone",
    )
    is_delivery, is_letter = (f"end.end = '{name}'" for name in (DELIVERED, DEAD_LETTER))
    kinds = {
        "delivery": f"IF({is_delivery}, end, NULL)",
        "outcome": f"IF({is_delivery} OR {is_letter}, NULL, end)",
        "letter": f"IF({is_letter}, end, NULL)",
    }
    aggregates = [
        f.expr(f"{aggregate}({kinds[kind]}) AS {name}")
        for kind, count in KINDS_OF_END.items()
        for aggregate, name in (("min", kind), ("count", count))
    ]
    last = f.expr(f"max(({kinds['outcome']}).end) AS last_outcome")
    return rows.groupBy(*PLACE, "alone").agg(*aggregates, last)


# A move that takes a pending record's place continues the record, as a hop does. A move that comes
# too late gets the outcome `missed` and changes nothing (docs/exactly-once.md#moved-records).

IS_MOVE: Final = """
coalesce(request.kind IN ('record', 'refused') AND request.moved_due_ms IS NOT NULL, false)
"""
"""SQL: whether a record is a move, even if it became a dead letter."""
MISSED_ITS_PLACE: Final = f"({IS_MOVE} AND coalesce(outcome.end = 'missed', false))"
"""SQL: whether the record is a move, and its outcome says that it came too late."""
MOVED: Final = "moved"
WAS_MOVED: Final = f"""
coalesce(outcome.end IN ('replaced', 'requeued') AND outcome.detail = '{MOVED}', false)
"""
"""SQL: whether the outcome says that the move at `outcome.next_offset` replaced the record."""

# Records with the same id have the same subject. A record without an id shares its subject with its
# hops. Only records with the same subject may end one another (docs/guide.md#recall).

SUBJECT: Final = "struct<ident:binary,first:bigint>"
"""`ident`: the id. `first`: without an id, the offset of the first record of the series of hops."""


def first_written(request: str = "") -> str:
    """Return SQL of the first offset in a record's series of hops. `request`: a column prefix."""
    return f"coalesce({request}first_offset, {request}hop_from, offset)"


def own_subject(request: str = "") -> str:
    """Return SQL of a record's own subject. For a recall, `first` is the offset that it names."""
    found = f"""
      CASE WHEN {request}ident IS NOT NULL THEN named_struct('ident', {request}ident, 'first', NULL)
        WHEN {request}kind = 'record'
          THEN named_struct('ident', NULL, 'first', {first_written(request)})
        WHEN {request}kind = 'recall' AND {request}recalled IS NOT NULL
          THEN named_struct('ident', NULL, 'first', {request}recalled) END
    """
    return f"CAST({found} AS {SUBJECT})"


def subject_hash(subject: str) -> str:
    """Return SQL of a hash of partition and subject; null without a subject."""
    return (
        f"CASE WHEN {subject}.ident IS NOT NULL THEN xxhash64(partition, {subject}.ident)"
        f" WHEN {subject}.first IS NOT NULL THEN xxhash64(partition, {subject}.first) END"
    )
