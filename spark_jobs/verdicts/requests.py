"""Facts that verdicts need from other records: from hops, purges and recalls."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.histories.ends import (
    HOP_OUTCOMES,
    IS_MOVE,
    MISSED_ITS_PLACE,
    MOVED,
    WAS_MOVED,
    first_written,
    own_subject,
)
from spark_jobs.records.headers import java_regex
from spark_jobs.requests.parsing import CONTROLS, PURGES
from spark_jobs.runtime.frames import local_rows, quoted
from spark_jobs.verdicts.rules import delivered_after, differences, sentence

# Hops: a rolled, requeued or moved record has exactly one successor, which repeats it unchanged
# (docs/exactly-once.md#10-rolled-and-requeued-records, docs/exactly-once.md#moved-records).

SAME: Final = {
    "topic": "target",
    "partition": "target_partition",
    "due": "due_ms",
    "key": "key_hash",
    "value": "value_hash",
    "headers": "headers_hash",
}
"""Parts of a request that a successor must repeat, and their columns."""
SAME_IF_REFUSED: Final = ("value", "headers")
"""Parts in SAME that are known even if the proxy refused the successor."""
FIRST_ORIGIN: Final = (
    "coalesce(request.first_origin, concat(ingress_topic, '/', partition, '/', offset))"
)
"""SQL: the first origin that a record's successor must name."""


def _pairs(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    same = {name: (f"request.{SAME[name]}", f"next.request.{SAME[name]}") for name in names}
    if "due" in same:
        due = "coalesce(next.request.moved_due_ms, next.request.due_ms)"
        same["due"] = ("request.due_ms", due)
    return {**same, "timer-first-origin": (FIRST_ORIGIN, "next.request.first_origin")}


_IS_NEXT_ATTEMPT: Final = """
(coalesce(next.request.hop_attempt, 0) - coalesce(request.hop_attempt, 0) BETWEEN 0 AND 1)
"""
"""Whether the successor's number of publish attempts is right: a hop adds one, or none."""
_CHANGED: Final = f"""
IF(next.request.kind = 'record',
  {differences({**_pairs(SAME), "attempt": ("true", _IS_NEXT_ATTEMPT)})},
  {differences(_pairs(SAME_IF_REFUSED))})
"""
_WENT_ON_MS: Final = """
IF(next.request.moved_due_ms IS NULL, request.fires_ms, next.request.timestamp_ms)
"""
HOPS: Final = {
    "successors": ("bigint", "coalesce(successors, 0)"),
    "successor": ("bigint", "next.offset"),
    "went_on_ms": ("bigint", _WENT_ON_MS),
    "keeps_due": ("boolean", "next.request.due_ms = request.due_ms"),
    "changed_in": ("string", _CHANGED),
    "came_from": ("string", "coalesce(came_from, request.known_from)"),
    "from_offset": ("bigint", "coalesce(from_offset, request.hop_from)"),
    "first_ms": ("bigint", "greatest(first_ms, moved_ms, request.known_first_ms)"),
}
"""Columns of a record with a successor (up to `changed_in`), and columns of a successor.
`successors`: their number. `successor`: the offset of the first successor. `went_on_ms`: the
earliest time at which the first successor was written. `keeps_due`: whether it has the same due.
`changed_in`: the parts of the request that differ. `came_from`: the outcome of the
predecessor, or `moved` for a move that replaced the predecessor. `from_offset`: the predecessor's
offset (the half message's, if `hop_from` names its commit). `first_ms`: the earliest possible
delivery of the first record of the hops, or of the last move.
"""
_FIRST_OFFSET: Final = (
    "try_cast(substring_index(IF(request.hop_from IS NULL, NULL, request.first_origin), '/', -1)"
    " AS bigint)"
)

_ENTRY_OFFSET: Final = f"""
IF(request.kind IN {quoted(CONTROLS)}, NULL,
  coalesce(decision.offset, offset))
"""
"""The offset that a successor of the record names. For a half message, it is the commit's offset.
It is null for a control record, which has no successor.
"""

_CAME_FROM: Final = f"""
CASE WHEN moved_to IS NULL THEN ended_as
  WHEN moved_to = offset AND {IS_MOVE} THEN '{MOVED}'
  ELSE concat(ended_as, ' by offset ', moved_to) END
"""
_MAY_HAVE_MISSED: Final = f"""
({IS_MOVE} AND deliveries = 0 AND outcomes = 0 AND ended_as IS NOT NULL
  AND NOT coalesce(came_from = '{MOVED}', false))
"""
"""Whether a move has no end, and its predecessor does not name it.
Either the proxy has not read the move, or the move's outcome is unseen.
"""
_IS_SUCCESSOR: Final = f"""
(request.hop_from IS NOT NULL AND request.kind IN ('record', 'refused')
  AND NOT {MISSED_ITS_PLACE} AND NOT {_MAY_HAVE_MISSED})
"""
_MOVED_MS: Final = f"""
last(IF({IS_MOVE} AND NOT {MISSED_ITS_PLACE} AND request.moved_due_ms != request.due_ms,
  request.timestamp_ms, NULL), true) OVER (
  PARTITION BY partition, coalesce(first_offset, -1 - offset) ORDER BY offset)
"""
"""When the last move to another due was written. The move is the record itself or a predecessor.
A move to the same due, such as after a pause, does not excuse lateness.
"""

IS_HOP: Final = f"""
(coalesce(outcome.end IN {quoted(HOP_OUTCOMES)}, false) OR {WAS_MOVED}
  OR request.hop_from IS NOT NULL)
"""
"""SQL: whether a record has a successor, or is one."""


def with_hops(histories: DataFrame) -> DataFrame:
    """Return histories of hops, which have GENERATION, with the columns HOPS."""
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
    hopped = came.selectExpr("*", f"{_CAME_FROM} AS came_from", f"{_MOVED_MS} AS moved_ms")
    first = (
        hopped.filter(_IS_SUCCESSOR)
        .selectExpr("partition", "request.hop_from AS entry_offset", "struct(offset, request) next")
        .groupBy("partition", "entry_offset")
        .agg(f.count("*").alias("successors"), f.min("next").alias("next"))
    )
    joined = hopped.join(first, ["partition", "entry_offset"], "left").join(
        origins, ["partition", "first_offset"], "left"
    )
    columns = [f.expr(f"CAST({sql} AS {kind}) AS {name}") for name, (kind, sql) in HOPS.items()]
    return joined.select(*histories.columns, *columns)


def without_hops(histories: DataFrame) -> DataFrame:
    """Return the histories with the columns of `with_hops`, for records that are no hops."""
    nothing = [f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in HOPS.items()]
    return histories.selectExpr("*", *nothing)


# A purge ends all pending records of some targets when the proxy reads it
# (docs/exactly-once.md#purges). Purges are few, so each record is compared with the purges of its
# partition.

PURGE: Final = (
    "struct<offset:bigint,timestamp_ms:bigint,applied_ms:bigint,targets:string,from_ms:bigint,"
    "to_ms:bigint>"
)
"""`applied_ms`: the time of the purge's outcome, or null. `targets`: a Java regular expression."""
PENDING_FROM: Final = f"IF({IS_MOVE}, offset, coalesce(request.hop_from, decision.offset, offset))"
"""SQL: an offset. Purges at higher offsets can end the record.
For a move, it is the offset of the move, because the record had another due before.
"""


def purges_in(histories: DataFrame) -> DataFrame | None:
    """Return arrays of PURGE by partition, in log order. Purges without effect are left out."""
    found = histories.filter(
        f"request.kind = '{PURGES}' AND coalesce(outcome.end, 'applied') = 'applied'"
    )
    named = found.selectExpr("request.target AS pattern").distinct().collect()
    patterns = [{"pattern": row.pattern, "targets": java_regex([row.pattern])} for row in named]
    if not patterns:
        return None
    regexes = local_rows(
        histories.sparkSession, patterns, {"pattern": "string", "targets": "string"}
    )
    purge = """
      struct(offset, request.timestamp_ms, outcome.at_ms AS applied_ms, targets,
        request.purge_from_ms AS from_ms, request.purge_to_ms AS to_ms) AS purge"""
    each = found.join(f.broadcast(regexes), f.expr("request.target = pattern"))
    purges = f.sort_array(f.collect_list("purge")).alias("purges")
    return each.selectExpr("partition", purge).groupBy("partition").agg(purges)


def with_purges(histories: DataFrame, purges: DataFrame | None) -> DataFrame:
    """Return the histories, each with the `purges` that may end its record."""
    if purges is None:
        return histories.selectExpr("*", f"CAST(NULL AS array<{PURGE}>) AS purges")
    beside = histories.join(f.broadcast(purges), "partition", "left")
    found = met("request.target", "request.due_ms", "coalesce(request.hop_from, offset)")
    purges_met = f"IF(request.kind IN ('record', 'prepare'), {found}, NULL) AS purges"
    return beside.select(*histories.columns, f.expr(purges_met))


def first_met(pending_from: str) -> str:
    """Return SQL of the first of `purges` at a later offset than `pending_from`."""
    return f"get(filter(purges, one -> one.offset > {pending_from}), 0)"


def met(target: str, due_ms: str, pending_from: str) -> str:
    """Return SQL of the `purges` that end a record which is pending from this offset on."""
    return (
        f"filter(purges, one -> one.offset > {pending_from}"
        f" AND {due_ms} BETWEEN one.from_ms AND one.to_ms AND {target} RLIKE one.targets)"
    )


_FIRED_AFTER: Final = sentence(
    "it {IF(delivered_ms IS NULL, 'became a dead letter', 'was delivered')}"
    " {ended_ms - purge.applied_ms} ms after the purge at offset {purge.offset}, which covers it,"
    " was applied"
)


def fired_all_the_same(fired: DataFrame, purges: DataFrame) -> DataFrame:
    """Return place and `why_wrong` of records that fired after a purge had ended them."""
    means = met("target", "due_ms", "pending_from")
    late = delivered_after("ended_ms", "due_ms", "one.applied_ms")
    purge = f"get(filter({means}, one -> {late}), 0) AS purge"
    found = fired.join(f.broadcast(purges), "partition").selectExpr(
        "partition", "offset", "delivered_ms", "ended_ms", purge
    )
    wrong = found.filter("purge IS NOT NULL")
    return wrong.selectExpr("partition", "offset", f"{_FIRED_AFTER} AS why_wrong")


# A recall names a record by its origin, so the recall gets the subject of that record. A recall
# without the required proof names nothing (docs/guide.md#recall).


def with_subjects(histories: DataFrame, *, has_recalls: bool) -> DataFrame:
    """Return the histories with `subject` (SUBJECT) and `recalled_first`.
    `recalled_first`: the offset at which the recalled record was first written. A recall of an
    unknown record keeps its own subject.
    """
    own = histories.selectExpr("*", f"{own_subject('request.')} AS own")
    if not has_recalls:
        found = own.selectExpr("*", "own AS subject", "CAST(NULL AS bigint) AS recalled_first")
        return found.drop("own")
    named = own.filter("request.kind IN ('record', 'prepare')").selectExpr(
        "partition",
        "offset AS recalled",
        "own AS of_named",
        f"{first_written('request.')} AS first",
    )
    asked = own.withColumn("recalled", f.col("request.recalled"))
    found = asked.join(named, ["partition", "recalled"], "left").selectExpr(
        "*", "coalesce(of_named, own) AS subject", "coalesce(first, recalled) AS recalled_first"
    )
    return found.select(*histories.columns, "subject", "recalled_first")


NEEDS_PROOF: Final = "request.needs_proof AND request.recalled IS NOT NULL"
_IS_PROVEN: Final = """
coalesce(known_key IS NOT NULL AND xxhash64(known_key) = key_hash, false)
  OR coalesce(known_ident = ident, false)
"""
"""Whether a recall's proof is right. A missing key proves nothing, even for a record without key.
xxhash64 of null is a number, so a null key is excluded.
"""


def without_unproven(histories: DataFrame, sighted: DataFrame) -> DataFrame:
    """Return the histories, in which a recall with a wrong proof names no record.
    `sighted`: SIGHT of every record. The proof for an unknown record counts as right.
    """
    place = ["partition", "offset"]
    asked = histories.filter(NEEDS_PROOF).selectExpr(
        *place, "request.recalled", "request.known_key", "request.known_ident"
    )
    names = f.broadcast(asked.select("partition", "recalled").distinct())
    alone = sighted.filter("key_hash IS NOT NULL").selectExpr(
        "partition", "offset AS recalled", "key_hash", "CAST(NULL AS binary) AS ident"
    )
    origins = f"explode(array_distinct(array(offset, {first_written('request.')}))) AS recalled"
    here = histories.filter("request.kind IN ('record', 'prepare')").selectExpr(
        "partition", origins, "request.ingress_key_hash AS key_hash", "request.ident"
    )
    known = alone.join(names, ["partition", "recalled"]).unionByName(here)
    proven = asked.join(known, ["partition", "recalled"]).groupBy(*place)
    found = proven.agg(f.bool_or(f.expr(_IS_PROVEN)).alias("is_proven"))
    unproven = f.broadcast(found.filter("NOT is_proven"))
    nothing = f.col("request").withField("recalled", f.lit(None).cast("bigint"))
    request = f.when(f.col("is_proven").isNull(), f.col("request")).otherwise(nothing)
    marked = histories.join(unproven, place, "left").withColumn("request", request)
    return marked.select(*histories.columns)
