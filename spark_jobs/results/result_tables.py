"""What an audit leaves: Delta tables, each row with the audit that wrote it (AUDIT before all).

verdicts/    VERDICTS: what an audit found; the newest of a record is what became of it
violations/  VIOLATION: the violations, and the commands that show each of them; none, no rows
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.circumstances.lateness_limits import USUAL_MS
from spark_jobs.evidence.inputs import Inputs
from spark_jobs.evidence.partition_state import up_to_ms
from spark_jobs.evidence.written_evidence import TableHash
from spark_jobs.results.lateness_figures import Figures, lateness
from spark_jobs.results.summary import Audited, AuditedRange, Summary
from spark_jobs.results.timeline import Timeline, timed, timeline
from spark_jobs.results.verdict_counts import IS_UNSURE, VerdictCounts, hash_of, hash_sums
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.tables.tables import Tables
from spark_jobs.verdicts.evaluation import VERDICTS

VERDICTS_TABLE: Final = "verdicts"
VIOLATIONS_TABLE: Final = "violations"
AUDIT: Final[Schema] = {"audit": "string", "audit_at_ms": "bigint"}
"""The audit's name, and the instant that it judged as of."""
VIOLATION: Final[Schema] = {**VERDICTS, "look": "string"}
FOLDERS: Final = ("audit",)
SHOW_ALL: Final = (
    "--max-messages 1 --isolation-level read_committed --property print.timestamp=true "
    "--property print.headers=true --property print.key=true"
)
DELETED: Final = "deleted from the ingress before this audit read them"
BEHIND: Final = f"due for more than {USUAL_MS // 1000} s, and not ended: the proxy is behind"
MOST_REASONS: Final = 20
SHOWN_VIOLATIONS: Final = 100
SHOWN_TARGETS: Final = 25
NO_ROWS: Final = TableHash(0, "0")


def what_was_audited(inputs: Inputs, bootstrap: str) -> Audited:
    """From what was read, for the results."""
    ranges = tuple(
        AuditedRange(
            state.partition,
            state.audited_from,
            state.audited_to,
            state.next_offset,
            state.watermark_ms,
            one.start,
            one.end,
        )
        for state, one in zip(inputs.partitions, inputs.snapshot.ingress, strict=True)
    )
    topic, at_ms = inputs.snapshot.ingress_topic, inputs.circumstances.at_ms
    return Audited(
        bootstrap,
        topic,
        at_ms,
        ranges,
        tuple(inputs.unverifiable),
        inputs.uncovered,
        inputs.circumstances.limits,
    )


@dataclass(frozen=True, slots=True)
class Results:
    """Of an audit, what its report shows. by_target: lateness, of those with most deliveries.
    broken: the first violations (VIOLATION). hashes: of the tables, by their names."""

    summary: Summary
    counts: VerdictCounts
    timeline: Timeline | None
    by_target: Sequence[tuple[str, Figures]]
    broken: Sequence[Mapping[str, Any]]
    hashes: Mapping[str, TableHash]


def write_tables(verdicts: DataFrame, audited: Audited, audit: str, tables: Tables) -> Results:
    """Add the rows of the audit of this name to all tables; what they come to.

    The verdicts are computed once: all else is made from the table written first, which is read
    three times, and more often only where there are violations, or records that nobody can judge.
    """
    tables.append(VERDICTS_TABLE, _of(audit, audited, conformed(verdicts, VERDICTS)), FOLDERS)
    written = timed(read_verdicts(tables, audit), audited.at_ms)
    counts = VerdictCounts.of(written)
    axis = counts.axis
    late = lateness(written, axis.step_of("due") if axis else f.lit(None))
    summary = _summary(counts, late.arrived, written, audited)
    broken = _write_violations(written, audited, audit, tables) if summary.violations else NO_ROWS
    return Results(
        summary,
        counts,
        timeline(written, axis, late.by_step) if axis else None,
        late.of_most(SHOWN_TARGETS),
        _first(read_violations(tables, audit)) if summary.violations else (),
        {VERDICTS_TABLE: counts.hash, VIOLATIONS_TABLE: broken},
    )


def _write_violations(
    verdicts: DataFrame, audited: Audited, audit: str, tables: Tables
) -> TableHash:
    shown = look(audited.bootstrap, audited.ingress_topic)
    broken = verdicts.where("is_violation").withColumn("look", shown).select(*VIOLATION)
    tables.append(VIOLATIONS_TABLE, _of(audit, audited, broken), FOLDERS)
    return hash_of(read_violations(tables, audit).agg(*hash_sums(VIOLATION)).collect())


def _first(violations: DataFrame) -> list[dict[str, Any]]:
    ordered = violations.orderBy("partition", "offset", "at_offset")
    return [row.asDict() for row in ordered.limit(SHOWN_VIOLATIONS).collect()]


def read_verdicts(tables: Tables, audit: str) -> DataFrame:
    """VERDICTS that the audit of this name gave."""
    found = tables.read(VERDICTS_TABLE, {**AUDIT, **VERDICTS})
    return found.where(f.col("audit") == audit).select(*VERDICTS)


def read_violations(tables: Tables, audit: str) -> DataFrame:
    """VIOLATIONS that the audit of this name found."""
    found = tables.read(VIOLATIONS_TABLE, {**AUDIT, **VIOLATION})
    return found.where(f.col("audit") == audit).select(*VIOLATION)


def _of(audit: str, audited: Audited, rows: DataFrame) -> DataFrame:
    return rows.select(f.lit(audit).alias("audit"), f.lit(audited.at_ms).alias("audit_at_ms"), "*")


def look(bootstrap: str, ingress_topic: str) -> Column:
    """The commands that show the ingress record and its end, one a line; Kafka's own console."""
    server = shlex.quote(bootstrap)

    def command(topic: Column, partition: str, offset: str) -> Column:
        return f.concat(
            f.lit(f"kafka-console-consumer.sh --bootstrap-server {server} --topic "),
            topic,
            f.lit(" --partition "),
            f.col(partition).cast("string"),
            f.lit(" --offset "),
            f.col(offset).cast("string"),
            f.lit(f" {SHOW_ALL}"),
        )

    return f.concat_ws(
        "\n",
        command(f.lit(ingress_topic), "partition", "offset"),
        command(f.col("at_topic"), "at_partition", "at_offset"),
    )


def _summary(
    counts: VerdictCounts, late: Figures | None, written: DataFrame, audited: Audited
) -> Summary:
    broken = counts.violations
    return Summary(
        dict(counts.verdicts),
        sum(broken.values()),
        dict(broken),
        {name: getattr(late, f"{name}_ms", None) for name in ("p50", "p99", "max")},
        counts.late,
        counts.overdue,
        up_to_ms(audited.at_ms, audited.ranges, counts.behind),
        _not_judged(counts, written, audited),
        audited,
        counts.attested,
        (late.records if late else 0) - counts.attested,
        counts.believed,
    )


def _not_judged(counts: VerdictCounts, written: DataFrame, audited: Audited) -> dict[str, int]:
    """By reason, at most so many; what the ingress has deleted is counted by its offsets."""
    found = _reasons(written) if counts.unsure else {}
    rest = counts.unsure - sum(found.values())
    found[DELETED] = sum(one.end - one.start for one in audited.unverifiable)
    found[BEHIND] = counts.unjudged_overdue
    found["for other reasons"] = rest
    return {reason: count for reason, count in found.items() if count}


def _reasons(written: DataFrame) -> dict[str, int]:
    reasons = written.where(IS_UNSURE).groupBy("detail").count()
    rows = reasons.orderBy(f.desc("count"), "detail").limit(MOST_REASONS).collect()
    return {row["detail"]: row["count"] for row in rows}
