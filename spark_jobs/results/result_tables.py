"""The tables that audits write, and views of them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from spark_jobs.circumstances import OPEN_TRANSACTION, USUAL_MS
from spark_jobs.evidence.inputs import Inputs
from spark_jobs.evidence.open_records import up_to_ms
from spark_jobs.evidence.previous_audit import TableHash
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
from spark_jobs.runtime.frames import Location, Schema, conformed
from spark_jobs.tables import Tables
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.rules import RECORD_DELETED, names
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    DEAD_LETTERED,
    MEANINGS,
    NOT_DONE,
    OVERDUE,
    PENDING,
    UNVERIFIABLE,
)

# What is counted of an audit's verdicts, all in one query.

IS_UNSURE: Final = f"""
((verdict = '{UNVERIFIABLE}' AND detail != '{RECORD_DELETED}')
  OR (verdict = '{PENDING}' AND startswith(detail, '{OPEN_TRANSACTION}')))
"""
"""SQL: whether a record could not be judged, for the reason that `detail` gives."""
_IS_BELIEVED: Final = (
    f"verdict = '{DEAD_LETTERED}' AND substring_index(detail, ':', 1) IN {names(BELIEVED)}"
    " AND NOT kind <=> 'refused'"
)
"""What is refused by the record itself is known."""
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
_TIMES: Final = {
    "first_ms": "min(least(due, ended, wrong))",
    "first_written_ms": "min(written)",
    "last_ms": "max(greatest(due, ended, wrong, written))",
}


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Of VERDICTS, by ingress partition, verdict, and whether it is a violation. given: of an
    ingress record that was read; halves: of a half message."""

    groups: Sequence[Row]

    @classmethod
    def of(cls, verdicts: DataFrame) -> "VerdictCounts":
        """Count VERDICTS with their times (`timeline.timed`)."""
        counts = [f"count_if({sql}) AS {name}" for name, sql in _COUNTS.items()]
        times = [f"{sql} AS {name}" for name, sql in _TIMES.items()]
        figures = [*map(f.expr, (*counts, *times)), *hash_sums(VERDICTS)]
        return cls(verdicts.groupBy(*_GROUPS).agg(*figures).collect())

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How many have each verdict; of one that there is none of, 0."""
        return {**dict.fromkeys(MEANINGS, 0), **_by_verdict(self.groups)}

    @property
    def violations(self) -> Mapping[str, int]:
        """How many violations have each verdict; none with 0."""
        return _by_verdict(row for row in self.groups if row.is_violation)

    @property
    def given(self) -> Mapping[int, int]:
        """How many ingress records have a verdict, by partition."""
        found: dict[int, int] = {}
        for row in self.groups:
            if row.given:
                found[row.partition] = found.get(row.partition, 0) + row.given
        return found

    @property
    def behind(self) -> set[int]:
        """Partitions in which something is due and has not ended."""
        return {row.partition for row in self.groups if row.behind}

    @property
    def late(self) -> int:
        """Delivered later than was asked for, or than is usual."""
        return self._sum("late", ARRIVED)

    @property
    def overdue(self) -> int:
        """Due for longer than was asked for, or than is usual, and not ended."""
        return self._sum("late", NOT_DONE)

    @property
    def unjudged_overdue(self) -> int:
        """The same, where nobody asked for it to be judged."""
        return 0 if self.verdicts[OVERDUE] else self.overdue

    @property
    def attested(self) -> int:
        """Deliveries whose time is the broker's."""
        return self._sum("attested", ARRIVED)

    @property
    def believed(self) -> int:
        """Dead letters whose reason is one that no topic shows: their detail begins with its
        code."""
        return self._sum("believed")

    @property
    def unsure(self) -> int:
        """Records that could not be judged (IS_UNSURE)."""
        return self._sum("unsure")

    @property
    def halves(self) -> int:
        """Half messages."""
        return self._sum("halves")

    @property
    def hash(self) -> TableHash:
        """Of all rows."""
        return hash_of(self.groups)

    @property
    def axis(self) -> Axis | None:
        """Of time, for all that happened; None where nothing has a time."""
        first, written, last = (_there(self.groups, name) for name in _TIMES)
        return axis_of(
            min(first, default=None), min(written, default=None), max(last, default=None)
        )

    def _sum(self, name: str, verdicts: Sequence[str] | None = None) -> int:
        return sum(row[name] for row in self.groups if not verdicts or row.verdict in verdicts)


def hash_sums(columns: Iterable[str]) -> list[Column]:
    """Aggregates that `hash_of` makes a hash of."""
    found = [f.col(name) for name in columns]
    hashed = f.xxhash64(*found, *[one.isNull() for one in found]).cast("decimal(38,0)")
    return [f.count("*").alias("rows"), f.sum(hashed).alias("hash")]


def hash_of(sums: Iterable[Row]) -> TableHash:
    """Of rows whose `hash_sums` these are: the same for the same rows, whatever their order."""
    found = [(row.rows, int(row.hash or 0)) for row in sums]
    return TableHash(sum(rows for rows, _ in found), str(sum(hashed for _, hashed in found)))


def _by_verdict(groups: Iterable[Row]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in groups:
        found[row.verdict] = found.get(row.verdict, 0) + row.rows
    return found


def _there(groups: Iterable[Row], name: str) -> list[int]:
    return [row[name] for row in groups if row[name] is not None]


# What an audit leaves: Delta tables, each row with the audit that wrote it (AUDIT before all).
#
# verdicts/    VERDICTS: what an audit found; the newest of a record is what became of it
# violations/  VIOLATION: the violations, and the commands that show each of them; none, no rows

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


# What became of each record, by all audits that went on from one another.

NEWEST: Final[Schema] = {**AUDIT, **VERDICTS}
"""The newest verdict of each record, with the audit that gave it."""


def newest_of_chain(history: History) -> DataFrame:
    """Return NEWEST of the last audit there and those that it goes on from.

    Raises `ResultsRefused` where there is none.
    """
    names = history.last_chain()
    if not names:
        raise ResultsRefused(
            f"{history.place} does not hold the results of an audit.",
            "Name in --output where an audit wrote its results.",
        )
    given = history.tables.read(VERDICTS_TABLE, NEWEST).where(f.col("audit").isin(names))
    if len(names) == 1:
        return given
    nameless = given.where("partition IS NULL")
    newest = f.max(f.struct(*NEWEST)).alias("newest")
    placed = given.where("partition IS NOT NULL").groupBy("partition", "offset").agg(newest)
    return placed.select("newest.*").unionByName(nameless)


# Views for SQL over the audits of a place.
#
# audits      AUDITS: each complete audit chain       the same, of the last audit and those that
# it goes on from verdicts    VERDICTS with AUDIT, all that complete audits gave newest      the
# same, the newest of each record of the chain: what became of it violations  VIOLATION with AUDIT
# lateness    how late the deliveries in `verdicts` were: FIGURES by AUDIT, target and minute_ms


def register_views(spark: SparkSession, place: Location) -> None:
    """Make the views in the session, over what the place holds now.

    Raises `ResultsRefused` where there is no audit."""
    for name, frame in views(spark, place).items():
        frame.createOrReplaceTempView(name)


def views(spark: SparkSession, place: Location) -> dict[str, DataFrame]:
    """What each view shows, by name."""
    history = History(spark, place)
    audits = history.audits

    def complete(table: str, schema: Schema) -> DataFrame:
        rows = history.tables.read(table, {**AUDIT, **schema})
        return rows.join(audits.select("audit"), "audit", "left_semi")

    verdicts = complete(VERDICTS_TABLE, VERDICTS)
    return {
        "newest": newest_of_chain(history),
        "audits": audits,
        "chain": audits.where(f.col("audit").isin(history.last_chain())),
        "verdicts": verdicts,
        "violations": complete(VIOLATIONS_TABLE, VIOLATION),
        "lateness": by_minute(verdicts, *AUDIT),
    }
