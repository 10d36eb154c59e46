"""The audit: a verdict for each ingress record, from the topics alone (docs/audit.md).

`kafka-delay-proxy audit`, `python -m spark_jobs.audit_delivery`, or `spark-submit` with this file.
Exit code 0: no violation; 2: violations; 1: the audit could not be made.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer
from pyspark.sql import SparkSession

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.evidence.inputs import Inputs, Reader, Window
from spark_jobs.evidence.partition_state import check_same, read_so_far, standings
from spark_jobs.evidence.previous_audit import earlier_audit, write_open
from spark_jobs.evidence.record_histories import facts
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import KafkaSettings, kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, standing
from spark_jobs.results.result_tables import Summary, what_was_audited, write_summary, write_tables
from spark_jobs.results.results_folder import check_folder, new_results
from spark_jobs.runtime.errors import RangeRefused
from spark_jobs.runtime.session import spark_session
from spark_jobs.verdicts.evaluation import Judgement, judged

VIOLATED: Final = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What to audit, and where its results go. No targets: all that the ingress asks for.
    continue_from: the results of an earlier audit; what that has read is not read again."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    output: Path
    continue_from: Path | None = None


def audit(spark: SparkSession, order: Order, window: Window) -> Summary:
    """Audit, and write tables, report and summary, whole or not at all.

    Raises `spark_jobs.runtime.errors.AuditError`.
    """
    from spark_jobs.results.report import write_report

    with new_results(order.output) as folder:
        try:
            inputs = _inputs(spark, order, window)
            judgement = _judged(spark, inputs)
            audited = what_was_audited(inputs, order.kafka.bootstrap)
            summary = write_tables(judgement.verdicts, audited, folder)
            if not window.is_limited:
                read = read_so_far(inputs.snapshot, order.group, inputs.stands)
                write_open(judgement.opened, read, folder)
            write_report(spark, folder, summary)
            write_summary(summary, folder)
        finally:
            spark.catalog.clearCache()
    return summary


def _inputs(spark: SparkSession, order: Order, window: Window) -> Inputs:
    broker = Broker(order.kafka)
    stands = standing(broker, order.own, order.group)
    earlier = earlier_audit(spark, order.continue_from) if order.continue_from else None
    if earlier:
        check_same(earlier.read, order.own.ingress, stands.topic_id, order.group)
    return Reader(spark, order.kafka, broker).inputs(stands, order.targets, window, earlier)


def _judged(spark: SparkSession, inputs: Inputs) -> Judgement:
    found = facts(inputs.asked, inputs.ends)
    return judged(found, standings(spark, inputs.stands), inputs.seen)


def main(
    output: arguments.Output,
    bootstrap: arguments.Bootstrap = "localhost:9092",
    kafka: arguments.Kafka = None,
    group: arguments.Group = "delay-proxy",
    ingress: arguments.Ingress = "timer.ingress",
    dead_letters: arguments.DeadLetters = "timer.dead-letters",
    outcomes: arguments.Outcomes = "timer.outcomes",
    settings_topic: arguments.SettingsTopic = "timer.settings",
    target: arguments.Targets = None,
    at: arguments.At = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    offsets: arguments.Offsets = None,
    continue_from: arguments.ContinueFrom = None,
    json: arguments.AsJson = False,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """What became of every record that was written to the ingress: 0 violations, or which."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    window = Window(at, since, until, arguments.offset_ranges(offsets or ()))
    with readable_errors():
        order = Order(
            kafka_settings(bootstrap, kafka or ()),
            group,
            own,
            target or (),
            output,
            continue_from,
        )
        _check_window(order, window)
        check_folder(output)
        Broker(order.kafka).topics()
        spark = spark_session("audit", master, driver_memory)
        summary = audit(spark, order, window)
    _say(summary, output, as_json=json)
    raise typer.Exit(VIOLATED if summary.violations else 0)


def _check_window(order: Order, window: Window) -> None:
    if order.continue_from and window.is_limited:
        raise RangeRefused(
            "--continue-from begins where the earlier audit ended.",
            "Leave out --since, --until and --offsets.",
        )
    if window.offsets and (window.since_ms, window.until_ms) != (None, None):
        raise RangeRefused("--offsets names the records.", "Leave out --since and --until.")


def _say(summary: Summary, output: Path, *, as_json: bool) -> None:
    if as_json:
        print(json_text.dumps(summary.to_json()))
        return
    for verdict, count in summary.verdicts.items():
        if count:
            print(f"{count:>12,}  {verdict.replace('_', ' ')}")
    print("Held: no violation." if not summary.violations else f"{summary.violations} violations.")
    print(f"Report: {(output / 'report.html').absolute()}")


if __name__ == "__main__":
    arguments.run(main)
