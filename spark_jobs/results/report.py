"""The report: one HTML file that a person reads, without Spark and without a network."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.results import formatting
from spark_jobs.results.charts import (
    NARROW,
    WIDE,
    lateness_chart,
    over_time_chart,
    violations_chart,
)
from spark_jobs.results.lateness_figures import by_target
from spark_jobs.results.result_tables import DELETED
from spark_jobs.results.summary import WORDS, Audited, AuditedRange, Summary
from spark_jobs.results.timeline import Timeline, timeline
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    LATE,
    MEANINGS,
    ORPHANED,
    OVERDUE,
    PENDING,
    UNVERIFIABLE,
    VIOLATIONS,
)

SHOWN_VIOLATIONS: Final = 100
SHOWN_RANGES: Final = 200
SHOWN_TARGETS: Final = 25
SHOWN_TOPICS: Final = 20
NAMED_RANGES: Final = 4
"""At the top of the page; all are in the table at its end."""
CHARTS: Final = {
    "lateness": lateness_chart,
    "over_time": over_time_chart,
    "violations": violations_chart,
}


def report_page(verdicts: DataFrame, violations: DataFrame, summary: Summary) -> str:
    """The page of an audit with these VERDICTS, and VIOLATION of them.

    Only what is shown comes to the driver: counts, at most so many steps and violations.
    """
    kept = _seen(verdicts).cache()
    try:
        page: str = _template().render(
            **_figures(summary),
            charts=_charts(timeline(kept, summary.audited.at_ms)),
            halves=_halves(kept, summary.audited),
            targets=_rows(by_target(kept).orderBy(f.desc("records")), SHOWN_TARGETS),
            broken=_rows(violations.orderBy("partition", "offset", "at_offset"), SHOWN_VIOLATIONS),
        )
    finally:
        kept.unpersist()
    return page


def _seen(verdicts: DataFrame) -> DataFrame:
    """What of the table is read more than once."""
    return verdicts.select(
        *("verdict", "is_violation", "kind", "target", "due_ms", "timestamp_ms", "delivered_ms"),
        *("lateness_ms", "ended_ms"),
    )


def _halves(seen: DataFrame, audited: Audited) -> int:
    """How many half messages there are whose check-backs were not compared with them: only where
    all of the ingress is known are they (`check_rules`)."""
    if not any(row.log_start for row in audited.ranges):
        return 0
    return seen.where("kind = 'prepare'").count()


def _charts(seen: Timeline | None) -> dict[str, Any]:
    """Each in two widths; the page shows the one that fits."""
    drawn: dict[str, Any] = dict.fromkeys(CHARTS, "")
    if seen is None:
        return {**drawn, "step": ""}
    drawn = {name: draw(seen, WIDE) + draw(seen, NARROW) for name, draw in CHARTS.items()}
    most = max(seen.waiting)
    at_ms = seen.axis.first_ms + (seen.waiting.index(most) + 1) * seen.axis.step_ms
    step = formatting.milliseconds(seen.axis.step_ms)
    return {**drawn, "step": step, "most_waiting": most, "most_waiting_ms": at_ms}


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
        "believed": summary.believed,
        "outside": sum(map(_outside, audited.ranges)),
        "overdue": summary.overdue,
        "violations": summary.violations,
        "only_late": summary.violations_by.keys() <= {LATE, OVERDUE},
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
        "deleted": DELETED,
        "gaps": audited.unverifiable,
        "uncovered": audited.uncovered,
        "limit_named": NAMED_RANGES,
        "limit_topics": SHOWN_TOPICS,
        "limit_ranges": SHOWN_RANGES,
        "limit_targets": SHOWN_TARGETS,
    }


def _outside(one: AuditedRange) -> int:
    """How many offsets, of those that the log holds, get no verdict by this audit."""
    return max(0, one.start - one.log_start) + max(0, one.log_end - max(one.end, one.log_start))


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
    for name in ("thousands", "milliseconds", "moment", "sentence"):
        environment.filters[name] = getattr(formatting, name)
    return environment.get_template("report.html.j2")
