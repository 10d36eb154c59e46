"""The audit: a verdict for each ingress record, from the topics alone (docs/audit.md).

`kafka-delay-proxy audit`, `python -m spark_jobs.audit_delivery`, or `spark-submit` with this file.
Exit code 0: no violation; 2: violations; 1: the audit could not be made.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.broker import Broker
from spark_jobs.kafka_settings import KafkaSettings, kafka_settings
from spark_jobs.positions import OwnTopics, standing
from spark_jobs.results_folder import check_folder, new_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.inputs import Inputs, Window
    from spark_jobs.results import Summary, Unverifiable

VIOLATED: Final = 2
WHY_DELETED: Final = "retention has deleted these records from the ingress"


@dataclass(frozen=True, slots=True)
class Order:
    """What to audit, and where its results go. No targets: all that the ingress asks for."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    output: Path


def audit(spark: SparkSession, order: Order, window: Window) -> Summary:
    """Audit, and write tables, report and summary, whole or not at all.

    Raises `spark_jobs.errors.AuditError`.
    """
    from spark_jobs.inputs import Reader
    from spark_jobs.report import write_report
    from spark_jobs.results import what_was_audited, write_summary, write_tables

    broker = Broker(order.kafka)
    stands = standing(broker, order.own, order.group)
    with new_results(order.output) as folder:
        try:
            inputs = Reader(spark, order.kafka, broker).inputs(stands, order.targets, window)
            audited = what_was_audited(
                inputs.snapshot, order.kafka.bootstrap, inputs.seen.at_ms, _deleted(inputs)
            )
            summary = write_tables(_verdicts(inputs), audited, folder)
            write_report(spark, folder, summary)
            write_summary(summary, folder)
        finally:
            spark.catalog.clearCache()
    return summary


def _verdicts(inputs: Inputs) -> DataFrame:
    from spark_jobs.facts import facts
    from spark_jobs.judgement import judged

    return judged(facts(inputs.asked, inputs.ends), inputs.standings, inputs.seen)


def _deleted(inputs: Inputs) -> list[Unverifiable]:
    from spark_jobs.results import Unverifiable

    starts = [(one.partition, one.start) for one in inputs.snapshot.ingress]
    return [Unverifiable(number, 0, start, WHY_DELETED) for number, start in starts if start > 0]


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
    json: arguments.AsJson = False,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """What became of every record that was written to the ingress: 0 violations, or which."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    with readable_errors():
        order = Order(kafka_settings(bootstrap, kafka or ()), group, own, target or (), output)
        check_folder(output)
        Broker(order.kafka).topics()
        from spark_jobs.inputs import Window
        from spark_jobs.session import spark_session

        spark = spark_session("audit", master, driver_memory)
        summary = audit(spark, order, Window(at, since, until))
    _say(summary, output, as_json=json)
    raise typer.Exit(VIOLATED if summary.violations else 0)


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
