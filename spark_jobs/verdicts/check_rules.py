"""Rules for check-backs: each question comes once, not before its time, about a half message that
asked for it, and shows that as it is (docs/guide.md#half-messages).

A check-back has no origin: it is found by topic and id. One of which no half message is known may
be another installation's.
"""

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.header_names import CHECK, ID, TRANSACTION
from spark_jobs.verdicts.rules.rule import differences, sentence

ReadCheckBacks: TypeAlias = Callable[[list[str]], DataFrame]
"""Gives the CHECK_BACKS in these topics."""
STAMPS: Final = f"{TRANSACTION},{ID},{CHECK}"
ASKED_FOR: Final = """
IF(request.kind = 'prepare' AND request.checks IS NOT NULL, named_struct(
  'ident', request.ident, 'topic', request.checks.topic, 'first_ms', request.checks.first_ms,
  'interval_ms', request.checks.interval_ms, 'most', request.checks.most,
  'timestamp_ms', request.timestamp_ms, 'knows_all', knows_all, 'key_hash', request.key_hash,
  'value_hash', request.value_hash, 'headers_hash', request.headers_hash), NULL)
"""
"""SQL: of a half message that wants to be asked about, what a check-back of it has to be.
knows_all: whether all half messages that there ever were are known; else it may be of another."""
_OTHER: Final = differences(
    {
        "key": ("half.key_hash", "key_hash"),
        "value": ("half.value_hash", "value_hash"),
        "headers": ("half.headers_hash", "headers_hash"),
        "stamps": (f"'{STAMPS}'", "stamps"),
    }
)
_DUE_MS: Final = "(half.first_ms + (number - 1) * half.interval_ms)"
_WRONG: Final = f"""
CASE WHEN {_OTHER} != '' AND half.knows_all
    THEN {sentence(f"check {{number}} asks with other {{{_OTHER}}}")}
  WHEN {_OTHER} != '' THEN ''
  WHEN NOT coalesce(number BETWEEN 1 AND half.most, false)
    THEN {sentence("check {number} of {half.most}")}
  WHEN at_ms < {_DUE_MS}
    THEN {sentence(f"check {{number}} came {{{_DUE_MS} - at_ms}} ms before its time")} END
"""
_TOO_MANY: Final = sentence(
    "check {number} came {times} times; the half messages that it may be about: {halves}"
)


def wrong_checks(
    asked_for: DataFrame, topics: Collection[str], read: ReadCheckBacks
) -> list[DataFrame]:
    """Half messages that were asked about as they must not be: partition, offset, `why_wrong`.

    asked_for: partition, offset and `half` (ASKED_FOR), in these topics; nothing is read where
    there are none.
    """
    if not topics:
        return []
    halves = asked_for.selectExpr(
        "partition", "offset", "half", "half.topic AS topic", "half.ident AS ident"
    )
    checks = read(sorted(topics)).withColumn("check_id", f.monotonically_increasing_id())
    there = halves.join(checks, ["topic", "ident"]).filter("half.timestamp_ms <= at_ms")
    candidates = there.selectExpr("*", f"{_WRONG} AS wrong")
    return [_unsound(candidates), _repeated(candidates)]


def _unsound(candidates: DataFrame) -> DataFrame:
    """Checks that are right for none of the half messages with their id, and may be about no other
    one: held against the last of them."""
    at = "struct(timestamp_ms, partition, offset, wrong)"
    found = candidates.selectExpr("*", "half.timestamp_ms AS timestamp_ms").groupBy("check_id")
    best = found.agg(
        f.min(f.expr("wrong IS NOT NULL")).alias("is_wrong"), f.max(f.expr(at)).alias("at")
    )
    return best.filter("is_wrong AND at.wrong != ''").selectExpr(
        "at.partition AS partition", "at.offset AS offset", "at.wrong AS why_wrong"
    )


def _repeated(candidates: DataFrame) -> DataFrame:
    """Checks that came more often than there are half messages that they are right for."""
    sound = candidates.filter("wrong IS NULL")
    content = ("topic", "ident", "number", "key_hash", "value_hash", "headers_hash")
    counted = sound.groupBy(*content).agg(
        f.count_distinct("check_id").alias("times"),
        f.count_distinct("partition", "offset").alias("halves"),
        f.min(f.struct("partition", "offset")).alias("first"),
    )
    return counted.filter("times > halves").selectExpr(
        "first.partition AS partition", "first.offset AS offset", f"{_TOO_MANY} AS why_wrong"
    )
