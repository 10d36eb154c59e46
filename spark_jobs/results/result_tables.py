"""What an audit leaves: tables (Parquet) that programs read on, and one JSON with the figures.

verdicts/    VERDICTS, one folder per verdict
summary/     how many of each verdict, and how late they were
lateness/    per target and minute (`lateness_figures.BY_MINUTE`)
violations/  the violations, and the commands that show each of them
summary.json the same figures, what was audited and what could not be
"""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.inputs import Inputs
from spark_jobs.evidence.partition_state import Unverifiable
from spark_jobs.results.lateness_figures import by_minute, figures
from spark_jobs.results.results_folder import SUMMARY
from spark_jobs.runtime.frames import conformed, read_table, spark_path
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.verdict_names import DELIVERED, MEANINGS

SHOW_ALL: Final = (
    "--max-messages 1 --isolation-level read_committed --property print.timestamp=true "
    "--property print.headers=true --property print.key=true"
)
Figures = dict[str, int | None]
"""p50, p99 and max, in ms; null without a delivery."""


class AuditedRange(NamedTuple):
    """What was audited of an ingress partition: offsets [start, end); where the proxy stood."""

    partition: int
    start: int
    end: int
    next_offset: int
    watermark_ms: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Audited:
    """What was audited. at_ms: the moment for which the verdicts are given, epoch ms."""

    bootstrap: str
    ingress_topic: str
    at_ms: int
    ranges: tuple[AuditedRange, ...]
    unverifiable: tuple[Unverifiable, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of an audit; `violations` 0 means that the guarantee held."""

    verdicts: dict[str, int]
    violations: int
    violations_by: dict[str, int]
    lateness_ms: Figures
    audited: Audited

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` and `--json` show it."""
        audited = self.audited
        return {
            "verdicts": self.verdicts,
            "violations": self.violations,
            "violations_by": self.violations_by,
            "lateness_ms": self.lateness_ms,
            "ingress": audited.ingress_topic,
            "ranges": [one._asdict() for one in audited.ranges],
            "unverifiable": [one._asdict() for one in audited.unverifiable],
            "at_ms": audited.at_ms,
        }


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
    return Audited(bootstrap, topic, at_ms, ranges, tuple(inputs.unverifiable))


def write_tables(verdicts: DataFrame, audited: Audited, folder: Path) -> Summary:
    """Write all tables into `folder` (of `new_results`); the figures.

    The verdicts are computed once: everything else is made from the table written first.
    """
    found = conformed(verdicts, VERDICTS)
    found.write.partitionBy("verdict").parquet(spark_path(folder / "verdicts"))
    written = read_verdicts(verdicts.sparkSession, folder)
    counted = written.groupBy("verdict", "is_violation").agg(
        f.count("*").alias("count"), *figures()[1:]
    )
    counted.coalesce(1).write.parquet(spark_path(folder / "summary"))
    by_minute(written).coalesce(1).write.parquet(spark_path(folder / "lateness"))
    broken = written.where("is_violation").withColumn(
        "look", look(audited.bootstrap, audited.ingress_topic)
    )
    broken.write.parquet(spark_path(folder / "violations"))
    return _summary(verdicts.sparkSession.read.parquet(spark_path(folder / "summary")), audited)


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


def _summary(table: DataFrame, audited: Audited) -> Summary:
    rows = table.collect()
    found = {row["verdict"]: 0 for row in rows}
    for row in rows:
        found[row["verdict"]] += row["count"]
    late = next((row for row in rows if row["verdict"] == DELIVERED), None)
    return Summary(
        {name: found.get(name, 0) for name in {**MEANINGS, **found}},
        sum(row["count"] for row in rows if row["is_violation"]),
        {row["verdict"]: row["count"] for row in rows if row["is_violation"]},
        {name: late[f"{name}_ms"] if late else None for name in ("p50", "p99", "max")},
        audited,
    )
