"""Hops: records that were rolled, requeued or moved have exactly one successor, unchanged.

docs/exactly-once.md#10-rolled-and-requeued-records, docs/exactly-once.md#moved-records
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import HOP_OUTCOMES
from spark_jobs.evidence.moves import IS_MOVE, MISSED_ITS_PLACE, MOVED, WAS_MOVED
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
    "went_on_ms": "bigint",
    "keeps_due": "boolean",
    "changed_in": "string",
    "came_from": "string",
    "from_offset": "bigint",
    "first_ms": "bigint",
}
"""Of a record that goes on: how many successors it has, the offset of the first, from when on that
may have followed, whether it has the same due, and in what it differs. Of a successor: how the
record ended that it names, null without one (of a move `moved`, if that says so); the offset of
that record, where what it names is a commit that of the half message; and when the first of all of
them, or the last move, could be delivered at the soonest, had it been due."""

SAME_IF_REFUSED: Final = ("value", "headers")
"""What is known of a successor, too, that the proxy refused as it read it."""
FIRST_ORIGIN: Final = (
    "coalesce(request.first_origin, concat(ingress_topic, '/', partition, '/', offset))"
)
"""SQL: what a record's successor must say that it began as."""


def _pairs(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    same = {name: (f"request.{SAME[name]}", f"next.request.{SAME[name]}") for name in names}
    if "due" in same:
        due = "coalesce(next.request.moved_due_ms, next.request.due_ms)"
        same["due"] = ("request.due_ms", due)
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
    "went_on_ms": "IF(next.request.moved_due_ms IS NULL, request.fires_ms,"
    " next.request.timestamp_ms)",
    "keeps_due": "next.request.due_ms = request.due_ms",
    "changed_in": _CHANGED,
    "came_from": "coalesce(came_from, request.known_from)",
    "from_offset": "coalesce(from_offset, request.hop_from)",
    "first_ms": "greatest(first_ms, moved_ms, request.known_first_ms)",
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

_CAME_FROM: Final = f"""
CASE WHEN moved_to IS NULL THEN ended_as
  WHEN moved_to = offset AND {IS_MOVE} THEN '{MOVED}'
  ELSE concat(ended_as, ' by offset ', moved_to) END
"""
_MAY_HAVE_MISSED: Final = f"""
({IS_MOVE} AND deliveries = 0 AND outcomes = 0 AND ended_as IS NOT NULL
  AND NOT coalesce(came_from = '{MOVED}', false))
"""
"""Whether a move has no end, and the other record does not name it: it has not been read, or its
end is not seen."""
_IS_SUCCESSOR: Final = f"""
(request.hop_from IS NOT NULL AND request.kind IN ('record', 'refused')
  AND NOT {MISSED_ITS_PLACE} AND NOT {_MAY_HAVE_MISSED})
"""
_MOVED_MS: Final = f"""
last(IF({IS_MOVE} AND NOT {MISSED_ITS_PLACE} AND request.moved_due_ms != request.due_ms,
  request.timestamp_ms, NULL), true) OVER (
  PARTITION BY partition, coalesce(first_offset, -1 - offset) ORDER BY offset)
"""
"""When the last move to another due, of its chain up to a record, was written: what only lets it go
after a pause is no excuse for its lateness."""

IS_HOP: Final = f"""
(coalesce(outcome.end IN {names(HOP_OUTCOMES)}, false) OR {WAS_MOVED}
  OR request.hop_from IS NOT NULL)
"""
"""SQL: whether a record goes on, or came from another one."""


def with_hops(histories: DataFrame) -> DataFrame:
    """The histories (with generations), all of them hops, with HOPS."""
    found = histories.selectExpr("*", f"{_ENTRY_OFFSET} AS entry_offset")
    before = found.selectExpr(
        "partition",
        "entry_offset AS came_from_offset",
        "offset AS from_offset",
        "outcome.end AS ended_as",
        f"IF({WAS_MOVED}, outcome.next_offset, NULL) AS moved_to",
    )
    origins = found.selectExpr(
        "partition",
        "offset AS first_offset",
        "greatest(request.timestamp_ms, decision.timestamp_ms) AS first_ms",
    )
    came = found.selectExpr(
        "*", "request.hop_from AS came_from_offset", f"{_FIRST_OFFSET} AS first_offset"
    ).join(before, ["partition", "came_from_offset"], "left")
    told = came.selectExpr("*", f"{_CAME_FROM} AS came_from", f"{_MOVED_MS} AS moved_ms")
    first = (
        told.filter(_IS_SUCCESSOR)
        .selectExpr("partition", "request.hop_from AS entry_offset", "struct(offset, request) next")
        .groupBy("partition", "entry_offset")
        .agg(f.count("*").alias("successors"), f.min("next").alias("next"))
    )
    joined = told.join(first, ["partition", "entry_offset"], "left").join(
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
