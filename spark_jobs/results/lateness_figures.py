"""How late deliveries were: by target, and by minute or hour and length of the delay."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runtime.frames import Schema, conformed

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


def by_minute(verdicts: DataFrame) -> DataFrame:
    """Lateness of what was delivered, as BY_MINUTE: minute_ms is that of the due, epoch ms."""
    keys = {"target": f.col("target"), "minute_ms": _floored("due_ms", MINUTE_MS)}
    return conformed(_figures(verdicts, keys), BY_MINUTE)


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


def figures() -> list[Column]:
    """Aggregates of `lateness_ms` in the columns of FIGURES; rows without one are not counted."""
    late = f.col("lateness_ms")
    return [
        f.count(late).alias("records"),
        f.percentile_approx(late, 0.5, EXACTNESS).alias("p50_ms"),
        f.percentile_approx(late, 0.99, EXACTNESS).alias("p99_ms"),
        f.max(late).alias("max_ms"),
    ]


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
    return grouped.agg(*figures())


def _floored(name: str, step_ms: int) -> Column:
    return f.col(name) - f.pmod(f.col(name), f.lit(step_ms))
