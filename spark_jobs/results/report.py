"""The report: one HTML file that a person reads, without Spark and without a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.results import formatting
from spark_jobs.results.charts import lateness_chart, over_time_chart
from spark_jobs.results.lateness_figures import by_target
from spark_jobs.results.result_tables import read_verdicts
from spark_jobs.results.summary import WORDS, Summary
from spark_jobs.runtime.frames import spark_path
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    MEANINGS,
    ORPHANED,
    PENDING,
    UNVERIFIABLE,
    VIOLATIONS,
)

REPORT: Final = "report.html"
SHOWN_VIOLATIONS: Final = 100
SHOWN_RANGES: Final = 200
SHOWN_TARGETS: Final = 25
SHOWN_TOPICS: Final = 20
BARS_PER_DECADE: Final = 5
MOST_STEPS: Final = 240
CALENDAR_MS: Final = (0, 250_000_000_000_000)
"""What has a date: until the year 9892."""
STEPS_MS: Final = (
    *(100, 250, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000),
)


def write_report(spark: SparkSession, folder: Path, summary: Summary) -> None:
    """Write `report.html` into a folder that `results.write_tables` has filled.

    Only what is shown comes to the driver: counts, at most so many steps, bars and violations.
    """
    verdicts = read_verdicts(spark, folder).cache()
    try:
        page = _template().render(
            **_figures(summary),
            charts=_charts(verdicts),
            targets=_rows(by_target(verdicts).orderBy(f.desc("records")), SHOWN_TARGETS),
            broken=_violations(spark, folder),
        )
    finally:
        verdicts.unpersist()
    (folder / REPORT).write_text(page, "utf-8")


def lateness_bars(verdicts: DataFrame) -> list[tuple[float, float, int]]:
    """How many deliveries were late by [from_ms, to_ms), in steps of equal ratio from 1 ms on.

    What was not late at all counts in the first.
    """
    late_ms = f.greatest(f.col("lateness_ms"), f.lit(1)).cast("double")
    step = f.floor(f.log10(late_ms) * BARS_PER_DECADE)
    late = verdicts.where(f.col("lateness_ms").isNotNull())
    rows = late.groupBy(step.alias("step")).count().orderBy("step").collect()
    return [(_bar_limit(row.step), _bar_limit(row.step + 1), row["count"]) for row in rows]


def over_time(verdicts: DataFrame) -> tuple[int, list[tuple[int, int, int]]]:
    """Of what was delivered: (step_ms, [(at_ms, due, delivered)]), gaps filled with zeros.

    A due before the record was written counts when it was written.
    """
    due_ms = f.col("delivered_ms") - f.col("lateness_ms")
    delivered = verdicts.where(due_ms.between(*CALENDAR_MS))
    delivered = delivered.where(f.col("delivered_ms").between(*CALENDAR_MS))
    first_ms, last_ms = delivered.agg(
        f.min(f.least(due_ms, "delivered_ms")), f.max(f.greatest(due_ms, "delivered_ms"))
    ).collect()[0]
    if first_ms is None:
        return 0, []
    step_ms = _step_ms(last_ms - first_ms)
    events = f.explode(f.array(_event(due_ms, due=1), _event(f.col("delivered_ms"), delivered=1)))
    at_ms = f.col("event.at_ms") - f.pmod("event.at_ms", f.lit(step_ms))
    counted = (
        delivered.select(events.alias("event"))
        .groupBy(at_ms.alias("at_ms"))
        .agg(f.sum("event.due").alias("due"), f.sum("event.delivered").alias("delivered"))
    )
    found = {row.at_ms: (row.due, row.delivered) for row in counted.collect()}
    return step_ms, [(at, *found.get(at, (0, 0))) for at in _steps(found, step_ms)]


def _event(at_ms: Column, due: int = 0, delivered: int = 0) -> Column:
    counts = f.lit(due).alias("due"), f.lit(delivered).alias("delivered")
    return f.struct(at_ms.alias("at_ms"), *counts)


def _bar_limit(step: int) -> float:
    return float(10 ** (step / BARS_PER_DECADE))


def _step_ms(span_ms: int) -> int:
    fitting = (step_ms for step_ms in STEPS_MS if span_ms <= step_ms * (MOST_STEPS - 2))
    return next(fitting, span_ms // (MOST_STEPS - 2) + 1)


def _steps(found: Mapping[int, Any], step_ms: int) -> range:
    """One step before the first and one after the last, so that a single one is seen, too."""
    return range(min(found) - step_ms, max(found) + 2 * step_ms, step_ms)


def _charts(verdicts: DataFrame) -> dict[str, Any]:
    step_ms, points = over_time(verdicts)
    return {
        "lateness": lateness_chart(lateness_bars(verdicts)),
        "over_time": over_time_chart(points),
        "step": formatting.milliseconds(step_ms),
    }


def _violations(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    found = spark.read.parquet(spark_path(folder / "violations"))
    return _rows(found.orderBy("partition", "offset", "at_offset"), SHOWN_VIOLATIONS)


def _rows(frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(limit).collect()]


def _figures(summary: Summary) -> dict[str, Any]:
    audited, counts = summary.audited, summary.verdicts
    orphans = counts.get(ORPHANED, 0)
    return {
        "result": WORDS[summary.exit_code],
        "held": summary.violations == 0,
        "not_judged": summary.not_judged,
        "until_ms": summary.until_ms,
        "late_records": summary.late,
        "attested": summary.attested,
        "claimed": summary.claimed,
        "overdue": summary.overdue,
        "violations": summary.violations,
        "violations_by": sorted(summary.violations_by.items(), key=lambda one: -one[1]),
        "total": sum(counts.values()) - orphans,
        "delivered": sum(counts.get(name, 0) for name in ARRIVED),
        "pending": counts.get(PENDING, 0),
        "unverifiable": counts.get(UNVERIFIABLE, 0),
        "late": summary.lateness_ms,
        "verdicts": _verdict_rows(counts),
        "meanings": MEANINGS,
        "ingress": audited.ingress_topic,
        "bootstrap": audited.bootstrap,
        "at_ms": audited.at_ms,
        "ranges": audited.ranges,
        "gaps": audited.unverifiable,
        "uncovered": audited.uncovered,
        "limit_topics": SHOWN_TOPICS,
        "limit_ranges": SHOWN_RANGES,
        "limit_targets": SHOWN_TARGETS,
    }


def _verdict_rows(counts: Mapping[str, int]) -> Sequence[dict[str, Any]]:
    """Violations first, then what held; within each what was found before what was not."""
    rows = [
        {
            "name": name,
            "count": n,
            "is_violation": name in VIOLATIONS,
            "meaning": MEANINGS.get(name),
        }
        for name, n in counts.items()
    ]
    return sorted(rows, key=lambda row: (not row["is_violation"], not row["count"]))


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("spark_jobs.results", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("thousands", "milliseconds", "moment"):
        environment.filters[name] = getattr(formatting, name)
    return environment.get_template("report.html.j2")
