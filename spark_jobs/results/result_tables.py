"""The tables that audits write, and views over them."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from spark_jobs.audit_scope import OPEN_TRANSACTION, USUAL_MS
from spark_jobs.histories.job import TableHash
from spark_jobs.histories.reader import Inputs
from spark_jobs.requests.error_codes import BELIEVED
from spark_jobs.results.summary import (
    Audited,
    AuditedRange,
    Figures,
    History,
    Summary,
    by_minute,
    lateness,
)
from spark_jobs.results.timeline import Axis, Timeline, axis_of, timed, timeline
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Location, Schema, conformed, quoted
from spark_jobs.tables import Tables
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.rules import RECORD_DELETED
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    DEAD_LETTERED,
    DESCRIPTIONS,
    NOT_DONE,
    OVERDUE,
    PENDING,
    UNVERIFIABLE,
)

IS_UNSURE: Final = f"""
((verdict = '{UNVERIFIABLE}' AND detail != '{RECORD_DELETED}')
  OR (verdict = '{PENDING}' AND startswith(detail, '{OPEN_TRANSACTION}')))
"""
_IS_BELIEVED: Final = (
    f"verdict = '{DEAD_LETTERED}' AND substring_index(detail, ':', 1) IN {quoted(BELIEVED)}"
    " AND NOT kind <=> 'refused'"
)
_GROUPS: Final = ("partition", "verdict", "is_violation")
_COUNTS: Final = {
    "given": "timestamp_ms IS NOT NULL",
    "late": "is_late",
    "attested": "is_attested",
    "believed": _IS_BELIEVED,
    "unsure": IS_UNSURE,
    "behind": "overdue_ms IS NOT NULL",
    "halves": "kind = 'prepare'",
}
"""Counts. `given`: records read. `attested`: records whose end has the broker's time. `behind`:
overdue records."""
_TIMES: Final = {
    "first_ms": "min(least(due, ended, wrong))",
    "first_written_ms": "min(written)",
    "last_ms": "max(greatest(due, ended, wrong, written))",
}


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Counts of VERDICTS by ingress partition, verdict, and whether it is a violation."""

    groups: Sequence[Row]

    @classmethod
    def of(cls, verdicts: DataFrame) -> "VerdictCounts":
        counts = [f"count_if({sql}) AS {name}" for name, sql in _COUNTS.items()]
        times = [f"{sql} AS {name}" for name, sql in _TIMES.items()]
        figures = [*map(f.expr, (*counts, *times)), *hash_sums(VERDICTS)]
        return cls(verdicts.groupBy(*_GROUPS).agg(*figures).collect())

    def sum(self, name: str, verdicts: Sequence[str] | None = None) -> int:
        return sum(row[name] for row in self.groups if not verdicts or row.verdict in verdicts)

    @property
    def verdicts(self) -> dict[str, int]:
        """Counts by verdict, zeros included."""
        found = Counter(dict.fromkeys(DESCRIPTIONS, 0))
        for row in self.groups:
            found[row.verdict] += row.rows
        return dict(found)

    @property
    def violations(self) -> dict[str, int]:
        found = Counter[str]()
        for row in self.groups:
            found[row.verdict] += row.rows if row.is_violation else 0
        return {verdict: count for verdict, count in found.items() if count}

    @property
    def given(self) -> Mapping[int, int]:
        """Counts of the records that were read, by partition."""
        found = Counter[int]()
        for row in self.groups:
            found[row.partition] += row.given
        return {partition: count for partition, count in found.items() if count}

    @property
    def axis(self) -> Axis | None:
        first, written, last = (
            [row[name] for row in self.groups if row[name] is not None] for name in _TIMES
        )
        return axis_of(min(first or written, default=None), max(last, default=None))


def hash_sums(columns: Iterable[str]) -> list[Column]:
    """Return aggregates over these columns, from which `hash_of` makes a hash."""
    found = [f.col(name) for name in columns]
    hashed = f.xxhash64(*found, *[one.isNull() for one in found]).cast("decimal(38,0)")
    return [f.count("*").alias("rows"), f.sum(hashed).alias("hash")]


def hash_of(sums: Iterable[Row]) -> TableHash:
    """Return a hash of rows from their `hash_sums`. The order of rows does not matter."""
    found = [(row.rows, int(row.hash or 0)) for row in sums]
    return TableHash(sum(rows for rows, _ in found), str(sum(hashed for _, hashed in found)))


# Two Delta tables: verdicts and violations. The first columns (AUDIT) name the audit that wrote the
# row. The newest verdict of a record is valid. A violation also has commands that show its records.

VERDICTS_TABLE: Final = "verdicts"
VIOLATIONS_TABLE: Final = "violations"
AUDIT: Final[Schema] = {"audit": "string", "audit_at_ms": "bigint"}
"""Name and instant of the audit that wrote a row."""
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
    """Return the audited ranges and the scope, for the results."""
    ranges = tuple(
        AuditedRange(
            state.partition,
            state.audited_from,
            state.audited_to,
            state.next_offset,
            state.watermark_ms,
            state.log_start,
            one.end,
        )
        for state, one in zip(inputs.partitions, inputs.snapshot.ingress, strict=True)
    )
    return Audited(
        bootstrap,
        inputs.snapshot.ingress_topic,
        inputs.scope.at_ms,
        ranges,
        tuple(inputs.unverifiable),
        inputs.uncovered,
        inputs.scope.limits,
    )


@dataclass(frozen=True, slots=True)
class Results:
    """The content of an audit's report."""

    summary: Summary
    counts: VerdictCounts
    timeline: Timeline | None
    by_target: Sequence[tuple[str, Figures]]
    broken: Sequence[Mapping[str, Any]]
    hashes: Mapping[str, TableHash]


def write_tables(verdicts: DataFrame, audited: Audited, audit: str, tables: Tables) -> Results:
    """Add the rows of an audit to all tables. The verdicts are computed once."""
    tables.append(VERDICTS_TABLE, _of(audit, audited, conformed(verdicts, VERDICTS)), FOLDERS)
    written = timed(read_verdicts(tables, audit), audited.at_ms)
    counts = VerdictCounts.of(written)
    axis = counts.axis
    late = lateness(written, axis.step_of("due") if axis else f.lit(None))
    by_size = sorted(late.by_target.items(), key=lambda one: (-one[1].records, one[0]))
    summary = _summary(counts, late.arrived, written, audited)
    hashes = {VERDICTS_TABLE: hash_of(counts.groups), VIOLATIONS_TABLE: NO_ROWS}
    shown: Sequence[Row] = ()
    if summary.violations:
        commands = look(audited.bootstrap, audited.ingress_topic)
        broken = written.where("is_violation").withColumn("look", commands).select(*VIOLATION)
        tables.append(VIOLATIONS_TABLE, _of(audit, audited, broken), FOLDERS)
        kept = read_violations(tables, audit)
        hashes[VIOLATIONS_TABLE] = hash_of(kept.agg(*hash_sums(VIOLATION)).collect())
        ordered = kept.orderBy("partition", "offset", "at_offset")
        shown = ordered.limit(SHOWN_VIOLATIONS).collect()
    return Results(
        summary,
        counts,
        timeline(written, axis, late.by_step) if axis else None,
        by_size[:SHOWN_TARGETS],
        [row.asDict() for row in shown],
        hashes,
    )


def read_verdicts(tables: Tables, audit: str) -> DataFrame:
    """Return VERDICTS of this audit."""
    found = tables.read(VERDICTS_TABLE, {**AUDIT, **VERDICTS})
    return found.where(f.col("audit") == audit).select(*VERDICTS)


def read_violations(tables: Tables, audit: str) -> DataFrame:
    """Return VIOLATION of this audit."""
    found = tables.read(VIOLATIONS_TABLE, {**AUDIT, **VIOLATION})
    return found.where(f.col("audit") == audit).select(*VIOLATION)


def _of(audit: str, audited: Audited, rows: DataFrame) -> DataFrame:
    return rows.select(f.lit(audit).alias("audit"), f.lit(audited.at_ms).alias("audit_at_ms"), "*")


def look(bootstrap: str, ingress_topic: str) -> Column:
    """Return Kafka's console commands that show the ingress record and its end, one a line."""
    consumer = f"kafka-console-consumer.sh --bootstrap-server {shlex.quote(bootstrap)} --topic "

    def command(topic: Column, partition: str, offset: str) -> Column:
        place = topic, f.lit(" --partition "), f.col(partition), f.lit(" --offset "), f.col(offset)
        return f.concat(f.lit(consumer), *place, f.lit(f" {SHOW_ALL}"))

    return f.concat_ws(
        "\n",
        command(f.lit(ingress_topic), "partition", "offset"),
        command(f.col("at_topic"), "at_partition", "at_offset"),
    )


def _summary(
    counts: VerdictCounts, late: Figures | None, written: DataFrame, audited: Audited
) -> Summary:
    broken, attested = counts.violations, counts.sum("attested", ARRIVED)
    behind = {row.partition for row in counts.groups if row.behind}
    stood_at = [one.watermark_ms for one in audited.ranges if one.partition in behind]
    return Summary(
        counts.verdicts,
        sum(broken.values()),
        broken,
        {name: getattr(late, f"{name}_ms", None) for name in ("p50", "p99", "max")},
        counts.sum("late", ARRIVED),
        counts.sum("late", NOT_DONE),
        max(0, min([audited.at_ms, *stood_at])),
        _not_judged(counts, written, audited),
        audited,
        attested,
        (late.records if late else 0) - attested,
        counts.sum("believed"),
    )


def _not_judged(counts: VerdictCounts, written: DataFrame, audited: Audited) -> dict[str, int]:
    """Return the number of unjudged records by reason. For deleted records, offsets are counted."""
    unsure, found = counts.sum("unsure"), dict[str, int]()
    if unsure:
        reasons = written.where(IS_UNSURE).groupBy("detail").count()
        most = reasons.orderBy(f.desc("count"), "detail").limit(MOST_REASONS).collect()
        found = {row["detail"]: row["count"] for row in most}
    rest = unsure - sum(found.values())
    found[DELETED] = sum(one.end - one.start for one in audited.unverifiable)
    found[BEHIND] = 0 if counts.verdicts[OVERDUE] else counts.sum("late", NOT_DONE)
    found["for other reasons"] = rest
    return {reason: count for reason, count in found.items() if count}


NEWEST: Final[Schema] = {**AUDIT, **VERDICTS}
"""Columns of the newest verdict of each record, with the audit that gave it."""


def newest_of_chain(history: History) -> DataFrame:
    """Return NEWEST of the last audit and its predecessors. Raises `ResultsRefused`."""
    names = history.last_chain()
    if not names:
        raise ResultsRefused(
            f"{history.place} does not hold the results of an audit.",
            "Name in --output the place of an audit's results.",
        )
    given = history.tables.read(VERDICTS_TABLE, NEWEST).where(f.col("audit").isin(names))
    if len(names) == 1:
        return given
    nameless = given.where("partition IS NULL")
    newest = f.max(f.struct(*NEWEST)).alias("newest")
    placed = given.where("partition IS NOT NULL").groupBy("partition", "offset").agg(newest)
    return placed.select("newest.*").unionByName(nameless)


def register_views(spark: SparkSession, place: Location) -> None:
    """Create the session's views over the current content. Raises `ResultsRefused`.
    `audits`: AUDITS, the complete audits. `chain`: the last audit and its predecessors. `verdicts`:
    the columns VERDICTS and AUDIT, of complete audits. `newest`: the newest verdict of each record
    in the chain. `violations`: VIOLATION with AUDIT. `lateness`: Figures by AUDIT, target and
    minute_ms.
    """
    history = History(spark, place)
    audits = history.audits

    def complete(table: str, schema: Schema) -> DataFrame:
        rows = history.tables.read(table, {**AUDIT, **schema})
        return rows.join(audits.select("audit"), "audit", "left_semi")

    verdicts = complete(VERDICTS_TABLE, VERDICTS)
    views = {
        "newest": newest_of_chain(history),
        "audits": audits,
        "chain": audits.where(f.col("audit").isin(history.last_chain())),
        "verdicts": verdicts,
        "violations": complete(VIOLATIONS_TABLE, VIOLATION),
        "lateness": by_minute(verdicts, *AUDIT),
    }
    for name, frame in views.items():
        frame.createOrReplaceTempView(name)
