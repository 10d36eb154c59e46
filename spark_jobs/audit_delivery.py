"""The audit: a verdict for each ingress record, from the topics alone (docs/audit.md).

`kafka-delay-proxy audit`, `python -m spark_jobs.audit_delivery`, or `spark-submit` with this file.
Exit code 0: no violation; 2: violations; 3: no violation, but not all could be judged; 1: the audit
could not be made.
"""

import json as json_text
from dataclasses import replace
from pathlib import Path

import typer
from pyspark.sql import SparkSession

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.evidence.inputs import Inputs, Reader
from spark_jobs.evidence.partition_state import check_same, partition_frame, read_so_far
from spark_jobs.evidence.record_histories import record_histories
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, committed_state
from spark_jobs.results.open_folder import read_previous_audit, write_open
from spark_jobs.results.report import write_report
from spark_jobs.results.result_tables import (
    read_verdicts,
    what_was_audited,
    write_summary,
    write_tables,
)
from spark_jobs.results.results_folder import check_folder, new_results
from spark_jobs.results.summary import Summary
from spark_jobs.runtime.errors import RangeRefused
from spark_jobs.runtime.materialised import Materialise, materialising
from spark_jobs.runtime.session import spark_session
from spark_jobs.verdicts.evaluation import evaluate


def audit(spark: SparkSession, job: AuditJob, selection: Selection) -> Summary:
    """Audit, and write tables, report and summary, whole or not at all.

    Raises `spark_jobs.runtime.errors.AuditError`.
    """
    with new_results(job.output) as folder, materialising(folder) as materialise:
        inputs = _inputs(spark, job, selection, materialise)
        histories = record_histories(inputs.requests, inputs.ends)
        partitions = partition_frame(spark, inputs.partitions)
        found = evaluate(
            histories, partitions, inputs.circumstances, materialise, inputs.read_check_backs
        )
        audited = what_was_audited(inputs, job.kafka.bootstrap)
        summary = write_tables(found.verdicts, audited, folder)
        given = read_verdicts(spark, folder).where("timestamp_ms IS NOT NULL")
        control = inputs.control.check(inputs.carried, given, found.skipped)
        summary = replace(summary, control=tuple(control))
        if not selection.is_limited:
            read = read_so_far(inputs.snapshot, job.group, inputs.partitions)
            write_open(found.carried, read, folder)
        write_report(spark, folder, summary)
        write_summary(summary, folder)
    return summary


def _inputs(
    spark: SparkSession, job: AuditJob, selection: Selection, materialise: Materialise
) -> Inputs:
    broker = Broker(job.kafka)
    committed = committed_state(broker, job.own, job.group)
    previous = read_previous_audit(spark, job.continue_from) if job.continue_from else None
    if previous:
        check_same(previous.read, job.own.ingress, committed.topic_id, job.group)
    reader = Reader(spark, job.kafka, broker, materialise)
    return reader.inputs(committed, job.targets, selection, job.limits, previous)


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
    max_lateness: arguments.MaxLateness = None,
    continue_from: arguments.ContinueFrom = None,
    json: arguments.AsJson = False,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """What became of every record that was written to the ingress: 0 violations, or which."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    selection = Selection(at, since, until, arguments.offset_ranges(offsets or ()))
    limits = arguments.limits(max_lateness or ())
    with readable_errors():
        job = AuditJob(
            kafka_settings(bootstrap, kafka or ()),
            group,
            own,
            target or (),
            output,
            continue_from,
            limits,
        )
        _check(job, selection)
        check_folder(output)
        Broker(job.kafka).topics()
        spark = spark_session("audit", master, driver_memory)
        summary = audit(spark, job, selection)
    _print(summary, output, as_json=json)
    raise typer.Exit(summary.exit_code)


def _check(job: AuditJob, selection: Selection) -> None:
    if job.continue_from and selection.is_limited:
        raise RangeRefused(
            "--continue-from begins where the earlier audit ended.",
            "Leave out --since, --until and --offsets.",
        )
    if selection.offsets and (selection.since_ms, selection.until_ms) != (None, None):
        raise RangeRefused("--offsets names the records.", "Leave out --since and --until.")


def _print(summary: Summary, output: Path, *, as_json: bool) -> None:
    if as_json:
        print(json_text.dumps(summary.to_json()))
        return
    for line in summary.lines():
        print(line)
    print(f"Report: {(output / 'report.html').absolute()}")


if __name__ == "__main__":
    arguments.run(main)
