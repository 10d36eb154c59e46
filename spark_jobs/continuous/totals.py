"""What a continuous audit has counted since it began."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from spark_jobs.verdicts.verdict_names import ARRIVED, PENDING

BUCKETS_MS: Final = (10, 50, 100, 250, 500, 1_000, 5_000, 30_000, 60_000, 600_000)


@dataclass(frozen=True, slots=True)
class Totals:
    """verdicts, violations: records by verdict, each counted once, when it was given; a violation
    found of a record that had its verdict already counts beside that. late_by: deliveries that were
    at most so many ms late (BUCKETS_MS, as text). late: what came later than is allowed, or usual.
    pending: what waits now; overdue: of that, what has been due for so long."""

    verdicts: Mapping[str, int] = field(default_factory=dict)
    violations: Mapping[str, int] = field(default_factory=dict)
    late_by: Mapping[str, int] = field(default_factory=dict)
    deliveries: int = 0
    late_sum_ms: int = 0
    pending: int = 0
    late: int = 0
    overdue: int = 0


def with_batch(before: Totals, given: DataFrame) -> Totals:
    """The totals after a batch with these VERDICTS."""
    late = f.when(f.col("verdict").isin(*ARRIVED), f.greatest("lateness_ms", f.lit(0)))
    rows = given.groupBy("verdict", "is_violation").agg(
        f.count("*").alias("records"),
        f.coalesce(f.sum(late), f.lit(0)).alias("late_sum_ms"),
        f.count_if("is_late").alias("late"),
        *[f.count_if(late <= bucket_ms).alias(f"within_{bucket_ms}") for bucket_ms in BUCKETS_MS],
    )
    return _added(before, rows.collect())


def _added(before: Totals, rows: Iterable[Row]) -> Totals:
    rows = list(rows)
    closed = [row for row in rows if row.verdict != PENDING]
    delivered = [row for row in closed if row.verdict in ARRIVED]
    waiting = [row for row in rows if row.verdict == PENDING]
    return Totals(
        _plus(before.verdicts, {row.verdict: row.records for row in closed}),
        _plus(before.violations, {row.verdict: row.records for row in closed if row.is_violation}),
        _plus(before.late_by, {str(one): _within(delivered, one) for one in BUCKETS_MS}),
        before.deliveries + sum(row.records for row in delivered),
        before.late_sum_ms + sum(row.late_sum_ms for row in delivered),
        sum(row.records for row in waiting),
        before.late + sum(row.late for row in delivered),
        sum(row.late for row in waiting),
    )


def _within(delivered: Iterable[Row], bucket_ms: int) -> int:
    return sum(int(row[f"within_{bucket_ms}"]) for row in delivered)


def _plus(before: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + added.get(name, 0) for name in {**before, **added}}
