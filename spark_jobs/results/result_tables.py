"""What an audit leaves: Delta tables, each row with the audit that wrote it (AUDIT before all).

verdicts/    VERDICTS: what an audit found; the newest of a record is what became of it
lateness/    per target and minute (`lateness_figures.BY_MINUTE`)
violations/  VIOLATION: the violations, and the commands that show each of them
"""

import shlex
from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from spark_jobs.circumstances.lateness_limits import USUAL_MS
from spark_jobs.circumstances.unseen import OPEN_TRANSACTION
from spark_jobs.evidence.inputs import Inputs
from spark_jobs.evidence.partition_state import up_to_ms
from spark_jobs.evidence.written_evidence import TableHash
from spark_jobs.requests.error_codes import BELIEVED
from spark_jobs.results.lateness_figures import by_minute, figures
from spark_jobs.results.summary import Audited, AuditedRange, Summary
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.tables.tables import Tables
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.rules.general_rules import RECORD_DELETED
from spark_jobs.verdicts.verdict_names import (
    ARRIVED,
    DEAD_LETTERED,
    MEANINGS,
    NOT_DONE,
    OVERDUE,
    PENDING,
    UNVERIFIABLE,
)

VERDICTS_TABLE: Final = "verdicts"
LATENESS_TABLE: Final = "lateness"
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
    return Audited(bootstrap, topic, at_ms, ranges, tuple(inputs.unverifiable), inputs.uncovered)


def write_tables(verdicts: DataFrame, audited: Audited, audit: str, tables: Tables) -> Summary:
    """Add the rows of the audit of this name to all tables; its figures.

    The verdicts are computed once: everything else is made from the table written first.
    """
    tables.append(VERDICTS_TABLE, _of(audit, audited, conformed(verdicts, VERDICTS)), FOLDERS)
    written = read_verdicts(tables, audit)
    tables.append(LATENESS_TABLE, _of(audit, audited, by_minute(written)).coalesce(1), FOLDERS)
    broken = written.where("is_violation").withColumn(
        "look", look(audited.bootstrap, audited.ingress_topic)
    )
    tables.append(VIOLATIONS_TABLE, _of(audit, audited, broken), FOLDERS)
    return _summary(written, audited)


def read_verdicts(tables: Tables, audit: str) -> DataFrame:
    """VERDICTS that the audit of this name gave."""
    found = tables.read(VERDICTS_TABLE, {**AUDIT, **VERDICTS})
    return found.where(f.col("audit") == audit).select(*VERDICTS)


def read_violations(tables: Tables, audit: str) -> DataFrame:
    """VIOLATIONS that the audit of this name found."""
    found = tables.read(VIOLATIONS_TABLE, {**AUDIT, **VIOLATION})
    return found.where(f.col("audit") == audit).select(*VIOLATION)


def table_hash(rows: DataFrame) -> TableHash:
    """Of these rows: the same for the same rows, whatever their order."""
    names = [f.col(name) for name in rows.columns]
    hashed = f.xxhash64(*names, *[name.isNull() for name in names]).cast("decimal(38,0)")
    (found,) = rows.agg(f.count("*").alias("rows"), f.sum(hashed).alias("hash")).collect()
    return TableHash(found.rows, str(found.hash or 0))


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


def _summary(written: DataFrame, audited: Audited) -> Summary:
    counted = written.groupBy("verdict", "is_violation").agg(
        f.count("*").alias("count"), f.count_if("is_late").alias("late")
    )
    rows = counted.collect()
    found = {row["verdict"]: 0 for row in rows}
    for row in rows:
        found[row["verdict"]] += row["count"]
    arrived = written.where(f.col("verdict").isin(*ARRIVED))
    attested = f.count_if("is_attested").alias("attested")
    (late,) = arrived.agg(*figures(), attested).collect()
    broken = {row["verdict"]: row["count"] for row in rows if row["is_violation"]}
    overdue = _late(rows, *NOT_DONE)
    behind = written.where("overdue_ms IS NOT NULL").select("partition").distinct().collect()
    return Summary(
        {name: found.get(name, 0) for name in {**MEANINGS, **found}},
        sum(broken.values()),
        broken,
        {name: late[f"{name}_ms"] for name in ("p50", "p99", "max")},
        _late(rows, *ARRIVED),
        overdue,
        up_to_ms(audited.at_ms, audited.ranges, {row.partition for row in behind}),
        _not_judged(written, audited, 0 if found.get(OVERDUE) else overdue),
        audited,
        late["attested"],
        late["records"] - late["attested"],
        _believed(written),
    )


def _believed(written: DataFrame) -> int:
    """Dead letters whose reason is one that no topic shows: their detail begins with its code."""
    code = f.substring_index("detail", ":", 1)
    return written.where((f.col("verdict") == DEAD_LETTERED) & code.isin(*BELIEVED)).count()


def _late(rows: Iterable[Row], *verdicts: str) -> int:
    return sum(row["late"] for row in rows if row["verdict"] in verdicts)


def _not_judged(written: DataFrame, audited: Audited, overdue: int) -> dict[str, int]:
    """By reason, at most so many; what the ingress has deleted is counted by its offsets."""
    detail = f.col("detail")
    is_unsure = (f.col("verdict") == UNVERIFIABLE) & (detail != RECORD_DELETED)
    is_open = (f.col("verdict") == PENDING) & detail.startswith(OPEN_TRANSACTION)
    unsure = written.where(is_unsure | is_open)
    reasons = unsure.groupBy("detail").count().orderBy(f.desc("count"), "detail")
    rows = reasons.limit(MOST_REASONS).collect()
    found = {row["detail"]: row["count"] for row in rows}
    found[DELETED] = sum(one.end - one.start for one in audited.unverifiable)
    found[BEHIND] = overdue
    if len(rows) == MOST_REASONS:
        found["for other reasons"] = unsure.count() - sum(row["count"] for row in rows)
    return {reason: count for reason, count in found.items() if count}
