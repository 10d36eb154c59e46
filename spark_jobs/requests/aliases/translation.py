"""Other schedulers' words (docs/aliases.md), read by column expressions.

A record in such words is given our own headers that say the same, behind its own; from then on it
is read like any other. Only policies that name aliases cost anything.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.fingerprints import letter_hash
from spark_jobs.records.header_names import CANCEL, HOP_FROM, PARTITION, TIMES, TOPIC
from spark_jobs.records.headers import by_name
from spark_jobs.requests.aliases.foreign import Ask, ForeignRecord, nothing, together
from spark_jobs.requests.aliases.names import WORDS
from spark_jobs.requests.aliases.schedulers import READERS
from spark_jobs.requests.error_codes import (
    HEADER_UNREADABLE,
    PARTITION_BAD,
    TARGET_ILLEGAL,
    TIME_UNREADABLE,
    first_of,
    refused,
)

DELETING = "etf1"
"""The alias that takes a record without value and without any request for a cancel."""
TIME = "time"


def aliases_in(policies: DataFrame) -> list[str]:
    """The aliases that these POLICIES name, in the order in which they are read. Runs a job."""
    named = {name for row in policies.select("aliases").collect() for name in row.aliases}
    return [name for name in WORDS if name in named]


def translated(judged: DataFrame, aliases: list[str]) -> DataFrame:
    """Records with what these aliases ask for added to their headers.

    Adds alias_code, why a record is refused, and raw_letter_hash, that of the record as it came,
    where it differs.
    """
    headers, key, value = f.col("headers"), f.col("key"), f.col("value")
    record = ForeignRecord(f.col("foreign"), key, value)
    ask, pieces = f.col("ask"), f.col("ask.pieces")
    code = first_of(ask["code"], _contradiction(pieces))
    added = f.when(f.col("alias_code").isNull(), f.array_distinct(pieces)).otherwise(nothing())
    has_more = f.size(pieces) > 0
    return (
        judged.select("*", by_name(headers).alias("foreign"))
        .select("*", _is_foreign(record, aliases).alias("is_foreign"))
        .select("*", f.when(f.col("is_foreign"), _ask(record, aliases)).alias("ask"))
        .select("*", f.when(f.col("is_foreign"), code).alias("alias_code"))
        .select(
            *(name for name in judged.columns if name != "headers"),
            "alias_code",
            f.when(has_more, letter_hash(key, headers)).alias("raw_letter_hash"),
            f.when(has_more, f.concat(headers, added)).otherwise(headers).alias("headers"),
        )
    )


def _is_foreign(record: ForeignRecord, aliases: list[str]) -> Column:
    """Our own cancel decides everything, and what the proxy wrote itself is in our words."""
    asks = reduce(or_, (_is_of(record, alias) for alias in aliases))
    deletes = record.is_deletion & _counts(DELETING)
    return (asks | deletes) & ~record.has_any((CANCEL, HOP_FROM))


def _is_of(record: ForeignRecord, alias: str) -> Column:
    return _counts(alias) & record.has_any(WORDS[alias].triggers)


def _counts(alias: str) -> Column:
    """Whether the policy names the alias."""
    return f.coalesce(f.array_contains(f.col("policy.aliases"), alias), f.lit(False))


def _ask(record: ForeignRecord, aliases: list[str]) -> Column:
    """What all aliases ask for together: struct of code and pieces."""
    is_of = {alias: _is_of(record, alias) for alias in aliases}
    asks = [read(record).where(is_of[alias]) for alias in aliases for read in READERS[alias]]
    ask = together(*asks, _deletion(record, reduce(or_, is_of.values())))
    return f.struct(ask.code.alias("code"), ask.pieces.alias("pieces"))


def _deletion(record: ForeignRecord, asks_more: Column) -> Ask:
    return record.cancel().where(~asks_more & record.is_deletion & _counts(DELETING))


def _contradiction(pieces: Column) -> Column:
    """The code of the first piece that contradicts one before it, or a cancel beside anything."""
    contradicting = f.filter(
        pieces,
        lambda piece, number: f.exists(
            f.slice(pieces, 1, number),
            lambda before: (_about(before) == _about(piece)) & ~before.eqNullSafe(piece),
        ),
    )
    about = _about(f.get(contradicting, f.lit(0)))
    subjects = f.array_distinct(f.transform(pieces, _about))
    cancels_and_more = f.array_contains(subjects, CANCEL) & (f.size(subjects) > 1)
    return first_of(
        refused(TIME_UNREADABLE, about == TIME),
        refused(TARGET_ILLEGAL, about == TOPIC),
        refused(PARTITION_BAD, about == PARTITION),
        refused(HEADER_UNREADABLE, about.isNotNull() | cancels_and_more),
    )


def _about(piece: Column) -> Column:
    """What a piece speaks of: all times are one matter."""
    return f.when(piece["key"].isin(*TIMES), f.lit(TIME)).otherwise(piece["key"])
