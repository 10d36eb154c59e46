"""Hops: records that were rolled or requeued have exactly one successor, unchanged.

docs/exactly-once.md#10-rolled-and-requeued-records
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import HOP_OUTCOMES
from spark_jobs.requests.controls import CONTROLS
from spark_jobs.verdicts.rules.rule import differences, names

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
    "first_ms": "bigint",
}
"""Of a record that was rolled or requeued: how many successors it has, the offset of the first,
and in what that differs. Of a successor: how the record ended that it names, null without one; and
when the first of all of them could be delivered at the soonest, had it been due."""

SAME_IF_REFUSED: Final = ("value", "headers")
"""What is known of a successor, too, that the proxy refused as it read it."""
FIRST_ORIGIN: Final = (
    "coalesce(request.first_origin, concat(ingress_topic, '/', partition, '/', offset))"
)
"""SQL: what a record's successor must say that it began as."""


def _pairs(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    same = {name: (f"request.{SAME[name]}", f"next.request.{SAME[name]}") for name in names}
    return {**same, "timer-first-origin": (FIRST_ORIGIN, "next.request.first_origin")}


_IS_NEXT_ATTEMPT: Final = """
(coalesce(next.request.hop_attempt, 0) - coalesce(request.hop_attempt, 0) BETWEEN 0 AND 1)
"""
"""A hop is one publish attempt more, or none: a record is given up after so many."""
_CHANGED: Final = f"""
IF(next.request.kind = 'record',
  {differences({**_pairs(SAME), "attempt": ("true", _IS_NEXT_ATTEMPT)})},
  {differences(_pairs(SAME_IF_REFUSED))})
"""
_COLUMNS: Final = {
    "successors": "coalesce(successors, 0)",
    "successor": "next.offset",
    "changed_in": _CHANGED,
    "came_from": "coalesce(came_from, request.known_from)",
    "first_ms": "coalesce(first_ms, request.known_first_ms)",
}

_FIRST_OFFSET: Final = (
    "try_cast(substring_index(IF(request.hop_from IS NULL, NULL, request.first_origin), '/', -1)"
    " AS bigint)"
)
"""That of the first origin of a successor: in the same partition."""

_ENTRY_OFFSET: Final = f"""
IF(request.kind IN {names(CONTROLS)}, NULL,
  coalesce(decision.offset, offset))
"""
"""What a successor names: a half message goes on under the offset of its commit. That itself never
does, though its own outcome may be unseen."""

IS_HOP: Final = f"""
(coalesce(outcome.end IN {names(HOP_OUTCOMES)}, false) OR request.hop_from IS NOT NULL)
"""
"""SQL: whether a record goes on, or came from another one."""


def with_hops(histories: DataFrame) -> DataFrame:
    """The histories (with generations), all of them hops, with HOPS."""
    found = histories.selectExpr("*", f"{_ENTRY_OFFSET} AS entry_offset")
    arrived = found.filter("request.hop_from IS NOT NULL AND request.kind IN ('record', 'refused')")
    after = arrived.selectExpr(
        "partition", "request.hop_from AS entry_offset", "struct(offset, request) AS next"
    )
    first = after.groupBy("partition", "entry_offset").agg(
        f.count("*").alias("successors"), f.min("next").alias("next")
    )
    before = found.selectExpr(
        "partition", "entry_offset AS came_from_offset", "outcome.end AS came_from"
    )
    origins = found.selectExpr(
        "partition",
        "offset AS first_offset",
        "greatest(request.timestamp_ms, decision.timestamp_ms) AS first_ms",
    )
    going = found.join(first, ["partition", "entry_offset"], "left")
    came = going.selectExpr(
        "*", "request.hop_from AS came_from_offset", f"{_FIRST_OFFSET} AS first_offset"
    )
    joined = came.join(before, ["partition", "came_from_offset"], "left").join(
        origins, ["partition", "first_offset"], "left"
    )
    return joined.selectExpr(*map(_quoted, histories.columns), *_as(_COLUMNS))


def without_hops(histories: DataFrame) -> DataFrame:
    """The same columns, for records none of which is a hop."""
    return histories.selectExpr("*", *_as(dict.fromkeys(HOPS, "NULL")))


def _as(columns: dict[str, str]) -> list[str]:
    return [f"CAST({columns[name]} AS {kind}) AS {name}" for name, kind in HOPS.items()]


def _quoted(name: str) -> str:
    return f"`{name}`"
