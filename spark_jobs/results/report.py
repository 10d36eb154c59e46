"""The report: one HTML file that needs no Spark and no network."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.logs import plain_lines
from spark_jobs.results import formatting
from spark_jobs.results.charts import NARROW, PLANS, WIDE, chart
from spark_jobs.results.result_tables import DELETED, SHOWN_TARGETS, Results
from spark_jobs.results.summary import WORDS
from spark_jobs.results.timeline import Timeline
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    DESCRIPTIONS,
    LATE,
    ORPHANED,
    OVERDUE,
    VIOLATIONS,
)


def report_page(results: Results) -> str:
    """Render the page of an audit."""
    summary, counts = results.summary, results.summary.verdicts
    ranges = summary.audited.ranges
    page: str = _template().render(
        summary=summary,
        audited=summary.audited,
        counts=counts,
        result=WORDS[summary.exit_code],
        total=sum(counts.values()) - counts[ORPHANED],
        delivered=sum(counts[name] for name in ARRIVED),
        only_late=summary.violations_by.keys() <= {LATE, OVERDUE},
        violations_by=sorted(summary.violations_by.items(), key=lambda one: -one[1]),
        verdicts=sorted(counts.items(), key=lambda one: (one[0] not in VIOLATIONS, not one[1])),
        violation_names=[*VIOLATIONS],
        descriptions=DESCRIPTIONS,
        deleted=DELETED,
        outside=sum(
            max(0, one.start - one.log_start) + max(0, one.log_end - max(one.end, one.log_start))
            for one in ranges
        ),
        # Half messages are compared with their check-backs only if no ingress record is deleted.
        halves=results.counts.sum("halves") if any(row.log_start for row in ranges) else 0,
        charts=_charts(results.timeline),
        targets=[{"target": target, **late._asdict()} for target, late in results.by_target],
        limit_targets=SHOWN_TARGETS,
        broken=results.broken,
    )
    return page


def _charts(seen: Timeline | None) -> dict[str, Any]:
    if seen is None:
        return {**dict.fromkeys(PLANS, ""), "step": ""}
    most = max(seen.pending)
    return {
        **{name: chart(name, seen, WIDE) + chart(name, seen, NARROW) for name in PLANS},
        "step": formatting.milliseconds(seen.axis.step_ms),
        "most_pending": most,
        "most_pending_ms": seen.axis.first_ms + (seen.pending.index(most) + 1) * seen.axis.step_ms,
    }


def _shown(value: object) -> object:
    """Return the value. In text, characters that would reverse nearby letters are escaped."""
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
