"""How late deliveries were: by target, by step of a time axis, and by minute."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runtime.frames import Schema
from spark_jobs.verdicts.rules.rule import names
from spark_jobs.verdicts.verdict_names import ARRIVED

MINUTE_MS: Final = 60_000
EXACTNESS: Final = 10_000
"""percentile_approx is off by at most one part in so many, in rank."""
FIGURES: Final[Schema] = {
    "records": "bigint",
    "p50_ms": "bigint",
    "p99_ms": "bigint",
    "max_ms": "bigint",
}
_FIGURES: Final = ("records", "ranked[0] AS p50_ms", "ranked[1] AS p99_ms", "max_ms")
_GROUPS: Final = ("has_arrived", "target", "step")
_OF_ARRIVED, _OF_TARGETS, _OF_STEPS = 0b011, 0b101, 0b110
"""Spark's numbers of the sets: a bit for each of _GROUPS that is left out."""


class Figures(NamedTuple):
    """How late so many deliveries were."""

    records: int
    p50_ms: int
    p99_ms: int
    max_ms: int


class Lateness(NamedTuple):
    """Of an audit's deliveries: `arrived` as they should (ARRIVED), None without one; and all, by
    target and by step of a time axis."""

    arrived: Figures | None
    by_target: Mapping[str, Figures]
    by_step: Mapping[int, Figures]

    def of_most(self, count: int) -> Sequence[tuple[str, Figures]]:
        """So many targets at most, those with most deliveries first."""
        ordered = sorted(self.by_target.items(), key=lambda one: (-one[1].records, one[0]))
        return ordered[:count]


def lateness(verdicts: DataFrame, step: Column) -> Lateness:
    """Of VERDICTS, by one query. `step`: the number of a record's step, null for none."""
    late = verdicts.where("lateness_ms IS NOT NULL").select(
        f.expr(f"verdict IN {names(ARRIVED)}").alias("has_arrived"),
        "target",
        step.alias("step"),
        "lateness_ms",
    )
    grouped = late.groupingSets([[name] for name in _GROUPS], *_GROUPS)
    counted = grouped.agg(f.grouping_id().alias("left_out"), *_counted())
    found: dict[int, dict[Any, Figures]] = {_OF_ARRIVED: {}, _OF_TARGETS: {}, _OF_STEPS: {}}
    for row in counted.selectExpr("left_out", *_GROUPS, *_FIGURES).collect():
        key = row[_GROUPS[[*found].index(row.left_out)]]
        found[row.left_out][key] = Figures(*(row[name] for name in FIGURES))
    by_step = {step: one for step, one in found[_OF_STEPS].items() if step is not None}
    return Lateness(found[_OF_ARRIVED].get(True), found[_OF_TARGETS], by_step)


def by_minute(verdicts: DataFrame, *beside: str) -> DataFrame:
    """Return FIGURES of the deliveries by `target` and `minute_ms`.

    minute_ms is the minute of the due, epoch ms.
    `beside`: further columns to group by, which come first.
    """
    minute_ms = f.col("due_ms") - f.pmod("due_ms", f.lit(MINUTE_MS))
    late = verdicts.where("lateness_ms IS NOT NULL")
    grouped = late.groupBy(*beside, "target", minute_ms.alias("minute_ms"))
    return grouped.agg(*_counted()).selectExpr(*beside, "target", "minute_ms", *_FIGURES)


def _counted() -> list[Column]:
    """What _FIGURES are made of: one sketch of the ranks serves both percentiles."""
    late = f.col("lateness_ms")
    return [
        f.count(late).alias("records"),
        f.percentile_approx(late, [0.5, 0.99], EXACTNESS).alias("ranked"),
        f.max(late).alias("max_ms"),
    ]
