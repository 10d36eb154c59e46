"""The report: one HTML file that needs no Spark and no network."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.logs import plain_lines
from spark_jobs.results import formatting
from spark_jobs.results.charts import (
    NARROW,
    WIDE,
    lateness_chart,
    over_time_chart,
    violations_chart,
)
from spark_jobs.results.result_tables import DELETED, SHOWN_TARGETS, Results
from spark_jobs.results.summary import WORDS, AuditedRange, Summary
from spark_jobs.results.timeline import Timeline
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

SHOWN_RANGES: Final = 200
SHOWN_TOPICS: Final = 20
NAMED_RANGES: Final = 4
"""Ranges at the top of the page. The table at its end has all."""
CHARTS: Final = {
    "lateness": lateness_chart,
    "over_time": over_time_chart,
    "violations": violations_chart,
}


def report_page(results: Results) -> str:
    """Render the page of an audit."""
    summary = results.summary
    page: str = _template().render(
        **_figures(summary),
        charts=_charts(results.timeline),
        halves=_halves(results),
        targets=[{"target": target, **late._asdict()} for target, late in results.by_target],
        broken=results.broken,
    )
    return page


def _halves(results: Results) -> int:
    """Return the number of half messages not compared. A comparison needs the whole ingress."""
    ranges = results.summary.audited.ranges
    return results.counts.sum("halves") if any(row.log_start for row in ranges) else 0


def _charts(seen: Timeline | None) -> dict[str, Any]:
    drawn: dict[str, Any] = dict.fromkeys(CHARTS, "")
    if seen is None:
        return {**drawn, "step": ""}
    drawn = {name: draw(seen, WIDE) + draw(seen, NARROW) for name, draw in CHARTS.items()}
    most = max(seen.waiting)
    at_ms = seen.axis.first_ms + (seen.waiting.index(most) + 1) * seen.axis.step_ms
    step = formatting.milliseconds(seen.axis.step_ms)
    return {**drawn, "step": step, "most_waiting": most, "most_waiting_ms": at_ms}


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
        "is_any_lateness_allowed": audited.limits.most_ms is None,
        "limited_targets": [pattern for pattern, _ in audited.limits.by_target],
        "limit_named": NAMED_RANGES,
        "limit_topics": SHOWN_TOPICS,
        "limit_ranges": SHOWN_RANGES,
        "limit_targets": SHOWN_TARGETS,
    }


def _outside(one: AuditedRange) -> int:
    return max(0, one.start - one.log_start) + max(0, one.log_end - max(one.end, one.log_start))


def _verdict_rows(counts: Mapping[str, int]) -> Sequence[dict[str, Any]]:
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


def _shown(value: object) -> object:
    """Return the value. Text from records must not reverse the letters beside it."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return plain_lines(value) if is_text else value


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("spark_jobs.results", "."),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("thousands", "milliseconds", "moment", "sentence"):
        environment.filters[name] = getattr(formatting, name)
    return environment.get_template("report.html.j2")
