"""What an audit leaves: tables (Parquet) that programs read on, and one JSON with the figures.

verdicts/    VERDICTS, one folder per verdict
summary/     how many of each verdict, and how late they were
lateness/    per target and minute (`lateness_figures.BY_MINUTE`)
violations/  the violations, and the commands that show each of them
summary.json the same figures, what was audited and what could not be
"""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.inputs import Inputs
from spark_jobs.evidence.lateness_limits import USUAL_MS
from spark_jobs.evidence.partition_state import up_to_ms
from spark_jobs.evidence.unseen import OPEN_TRANSACTION
from spark_jobs.requests.error_codes import BELIEVED
from spark_jobs.results.lateness_figures import by_minute, figures
from spark_jobs.results.results_folder import SUMMARY
from spark_jobs.results.summary import Audited, AuditedRange, Summary
from spark_jobs.runtime.frames import conformed, read_table, spark_path
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


def write_tables(verdicts: DataFrame, audited: Audited, folder: Path) -> Summary:
    """Write all tables into `folder` (of `new_results`); the figures.

    The verdicts are computed once: everything else is made from the table written first.
    """
    found = conformed(verdicts, VERDICTS)
    found.write.partitionBy("verdict").parquet(spark_path(folder / "verdicts"))
    written = read_verdicts(verdicts.sparkSession, folder)
    counted = written.groupBy("verdict", "is_violation").agg(
        f.count("*").alias("count"), f.count_if("is_late").alias("late"), *figures()[1:]
    )
    counted.coalesce(1).write.parquet(spark_path(folder / "summary"))
    by_minute(written).coalesce(1).write.parquet(spark_path(folder / "lateness"))
    broken = written.where("is_violation").withColumn(
        "look", look(audited.bootstrap, audited.ingress_topic)
    )
    broken.write.parquet(spark_path(folder / "violations"))
    summary = verdicts.sparkSession.read.parquet(spark_path(folder / "summary"))
    return _summary(summary, written, audited)


def write_summary(summary: Summary, folder: Path) -> None:
    """Write `summary.json`: last of all, since it makes the folder an audit's."""
    (folder / SUMMARY).write_text(json.dumps(summary.to_json(), indent=2) + "\n", "utf-8")


def read_verdicts(spark: SparkSession, folder: Path) -> DataFrame:
    """VERDICTS as an audit wrote them into `folder`."""
    return read_table(spark, folder / "verdicts", VERDICTS)


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


def _summary(table: DataFrame, written: DataFrame, audited: Audited) -> Summary:
    rows = table.collect()
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
