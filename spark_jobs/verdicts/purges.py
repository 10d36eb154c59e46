"""Purges end all that waits for some targets as they are read (docs/exactly-once.md#purges).

They are few, and each record is held against those of its partition alone.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.moves import IS_MOVE
from spark_jobs.records.topic_names import java_regex
from spark_jobs.requests.controls import PURGES
from spark_jobs.runtime.frames import local_rows

PURGE: Final = (
    "struct<offset:bigint,timestamp_ms:bigint,applied_ms:bigint,targets:string,from_ms:bigint,"
    "to_ms:bigint>"
)
"""applied_ms: when its outcome was written, null where that is not known. targets: a Java regular
expression. from_ms, to_ms: the first and the last due."""
NAMES_ONE: Final = "coalesce(outcome.detail LIKE 'purged by %', false)"
"""SQL: whether an outcome says that a purge ended its record."""
WAITS_FROM: Final = f"IF({IS_MOVE}, offset, coalesce(request.hop_from, decision.offset, offset))"
"""SQL: a purge behind this offset finds the record, on its way into the log or waiting. What waited
where a move is now had another due."""


def named_by(purge: str) -> str:
    """SQL of what an outcome says of a record that this purge (a struct with `offset`) ended."""
    return f"concat('purged by ', ingress_topic, '/', partition, '/', {purge}.offset)"


def purges_in(histories: DataFrame) -> DataFrame | None:
    """Of each partition that has some its `purges`, an array of PURGE in the order of the log; None
    where there are none at all. One that did not say `applied` has done nothing."""
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
    told = found.selectExpr(
        "partition",
        "request.target AS pattern",
        *("offset", "request.timestamp_ms", "outcome.at_ms AS applied_ms"),
        *("request.purge_from_ms AS from_ms", "request.purge_to_ms AS to_ms"),
    ).join(f.broadcast(regexes), "pattern")
    fields = "offset, timestamp_ms, applied_ms, targets, from_ms, to_ms"
    each = told.selectExpr("partition", f"struct({fields}) AS purge")
    return each.groupBy("partition").agg(f.sort_array(f.collect_list("purge")).alias("purges"))


def with_purges(histories: DataFrame, purges: DataFrame | None) -> DataFrame:
    """With `purges`: those of its partition that a record may meet, by what it asks for; null where
    there are none at all."""
    if purges is None:
        return histories.selectExpr("*", f"CAST(NULL AS array<{PURGE}>) AS purges")
    beside = histories.join(f.broadcast(purges), "partition", "left")
    found = met("request.target", "request.due_ms", "coalesce(request.hop_from, offset)")
    return beside.selectExpr(
        *_all_of(histories.columns),
        f"IF(request.kind IN ('record', 'prepare'), {found}, NULL) AS purges",
    )


def first_met(waits_from: str) -> str:
    """SQL of the first of `purges` behind this offset."""
    return f"get(filter(purges, one -> one.offset > {waits_from}), 0)"


def met(target: str, due_ms: str, waits_from: str) -> str:
    """SQL of those of `purges` that end a record which waits behind this offset."""
    return (
        f"filter(purges, one -> one.offset > {waits_from}"
        f" AND {due_ms} BETWEEN one.from_ms AND one.to_ms AND {target} RLIKE one.targets)"
    )


def _all_of(columns: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in columns]
