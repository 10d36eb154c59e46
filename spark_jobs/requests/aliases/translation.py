"""Other schedulers' headers (docs/aliases.md), translated by column expressions.

A record with such headers gets our own ones that mean the same, behind its own; from then on it
is read like any other. Only policies that name aliases cost anything.
"""

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.fingerprints import letter_hash
from spark_jobs.records.header_names import CANCEL, HOP_FROM, PARTITION, RECALL, TIMES, TOPIC
from spark_jobs.records.headers import by_name
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.aliases.alias_headers import ALIAS_HEADERS
from spark_jobs.requests.aliases.aliased_record import AliasedRecord, nothing, together
from spark_jobs.requests.aliases.schedulers import READERS
from spark_jobs.requests.error_codes import first_of, refused

DELETING = "etf1"
"""The alias that takes a record without value and without any request for a cancel."""
TIME = "time"
UNCHANGED = (
    *("partition", "offset", "timestamp_ms", "key", "value", "large_bytes"),
    *("is_blurred", "policy"),
)


def translation(named: Collection[str], policy: Column) -> list[list[Column | str]]:
    """The selects that add to a record's headers what these aliases ask for, if its policy (POLICY)
    names them, too.

    They add alias_code, why a record is refused, and raw_letter_hash, that of the record as it
    came, where it differs.
    """
    aliases = tuple(name for name in ALIAS_HEADERS if name in named)
    if not aliases:
        return [["*", _null("string", "alias_code"), _null("bigint", "raw_letter_hash")]]
    headers, key, value = f.col("headers"), f.col("key"), f.col("value")
    record = AliasedRecord(f.col("by_name"), key, value)
    counts = {alias: _counts(alias, policy) for alias in ALIAS_HEADERS}
    request, pieces = f.col("translated"), f.col("translated.pieces")
    translated = f.when(f.col("is_aliased"), _translated(record, aliases, counts))
    code = first_of(request["code"], _contradiction(pieces))
    added = f.when(f.col("alias_code").isNull(), f.array_distinct(pieces)).otherwise(nothing())
    has_more = f.size(pieces) > 0
    return [
        ["*", by_name(headers).alias("by_name")],
        ["*", _is_aliased(record, aliases, counts, policy).alias("is_aliased")],
        ["*", translated.alias("translated")],
        ["*", f.when(f.col("is_aliased"), code).alias("alias_code")],
        [
            *UNCHANGED,
            "alias_code",
            f.when(has_more, letter_hash(key, headers)).alias("raw_letter_hash"),
            f.when(has_more, f.concat(headers, added)).otherwise(headers).alias("headers"),
        ],
    ]


def _null(kind: str, name: str) -> Column:
    return f.lit(None).cast(kind).alias(name)


def _is_aliased(
    record: AliasedRecord, aliases: tuple[str, ...], counts: Mapping[str, Column], policy: Column
) -> Column:
    """Our own cancel or recall decides everything, and what the proxy wrote itself has our own
    headers."""
    is_recall = record.has_any((RECALL,)) & policy["recalls_in"].isNotNull()
    parts = reduce(or_, (_is_of(record, alias, counts) for alias in aliases))
    deletes = record.is_deletion & counts[DELETING]
    return (parts | deletes) & ~record.has_any((CANCEL, HOP_FROM)) & ~is_recall


def _is_of(record: AliasedRecord, alias: str, counts: Mapping[str, Column]) -> Column:
    return counts[alias] & record.has_any(ALIAS_HEADERS[alias].triggers)


def _counts(alias: str, policy: Column) -> Column:
    """Whether the policy names the alias."""
    return f.coalesce(f.array_contains(policy["aliases"], alias), f.lit(False))


def _translated(
    record: AliasedRecord, aliases: tuple[str, ...], counts: Mapping[str, Column]
) -> Column:
    """What all aliases ask for together: struct of code and pieces."""
    is_of = {alias: _is_of(record, alias, counts) for alias in aliases}
    parts = [read(record).where(is_of[alias]) for alias in aliases for read in READERS[alias]]
    deletes = ~reduce(or_, is_of.values()) & record.is_deletion & counts[DELETING]
    request = together(*parts, record.cancel().where(deletes))
    return f.struct(request.code.alias("code"), request.pieces.alias("pieces"))


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
        refused(codes.TIME_UNREADABLE, about == TIME),
        refused(codes.TARGET_ILLEGAL, about == TOPIC),
        refused(codes.PARTITION_BAD, about == PARTITION),
        refused(codes.HEADER_UNREADABLE, about.isNotNull() | cancels_and_more),
    )


def _about(piece: Column) -> Column:
    """What a piece speaks of: all times are one matter."""
    return f.when(piece["key"].isin(*TIMES), f.lit(TIME)).otherwise(piece["key"])
