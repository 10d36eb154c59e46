"""How late deliveries were: by target, and by minute or hour and length of the delay."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.verdicts.rules.rule import names
from spark_jobs.verdicts.verdict_names import ARRIVED

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
EXACTNESS: Final = 10_000
"""percentile_approx is off by at most one part in so many, in rank."""
FIGURES: Final[Schema] = {
    "records": "bigint",
    "p50_ms": "bigint",
    "p99_ms": "bigint",
    "max_ms": "bigint",
}
BY_MINUTE: Final[Schema] = {"target": "string", "minute_ms": "bigint", **FIGURES}
BY_HOUR: Final[Schema] = {"target": "string", "delay": "string", "hour_ms": "bigint", **FIGURES}
BY_TARGET: Final[Schema] = {"target": "string", **FIGURES}
DELAYS: Final = (
    (1_000, "up to 1 s"),
    (60_000, "up to 1 min"),
    (600_000, "up to 10 min"),
    (HOUR_MS, "up to 1 h"),
    (86_400_000, "up to 1 day"),
)
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
    """Lateness of what was delivered, as BY_MINUTE: minute_ms is that of the due, epoch ms.
    `beside`: further columns to tell apart, which come first."""
    keys = {
        **{name: f.col(name) for name in beside},
        "target": f.col("target"),
        "minute_ms": _floored("due_ms", MINUTE_MS),
    }
    return _figures(verdicts, keys).select(*beside, *BY_MINUTE)


def by_hour(verdicts: DataFrame) -> DataFrame:
    """The same as BY_HOUR: per target, length of the delay asked for, and hour of the due."""
    keys = {
        "target": f.col("target"),
        "delay": delay_label(),
        "hour_ms": _floored("due_ms", HOUR_MS),
    }
    return conformed(_figures(verdicts, keys), BY_HOUR)


def by_target(verdicts: DataFrame) -> DataFrame:
    """The same as BY_TARGET: over all of the time."""
    return conformed(_figures(verdicts, {"target": f.col("target")}), BY_TARGET)


def delay_label() -> Column:
    """How long the record was to wait after it was written, in coarse steps."""
    asked_ms = f.col("due_ms") - f.col("timestamp_ms")
    label = f.when(asked_ms <= 0, "at once")
    for limit_ms, text in DELAYS:
        label = label.when(asked_ms <= limit_ms, text)
    return label.otherwise("longer")


def _figures(verdicts: DataFrame, keys: dict[str, Column]) -> DataFrame:
    grouped = verdicts.where(f.col("lateness_ms").isNotNull()).groupBy(
        *[key.alias(name) for name, key in keys.items()]
    )
    return grouped.agg(*_counted()).selectExpr(*keys, *_FIGURES)


def _counted() -> list[Column]:
    """What _FIGURES are made of: one sketch of the ranks serves both percentiles."""
    late = f.col("lateness_ms")
    return [
        f.count(late).alias("records"),
        f.percentile_approx(late, [0.5, 0.99], EXACTNESS).alias("ranked"),
        f.max(late).alias("max_ms"),
    ]


def _floored(name: str, step_ms: int) -> Column:
    return f.col(name) - f.pmod(f.col(name), f.lit(step_ms))
