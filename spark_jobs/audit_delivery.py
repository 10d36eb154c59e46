"""The audit: a verdict for each ingress record, from the topics alone (docs/audit.md).

`kafka-delay-proxy audit`, `python -m spark_jobs.audit_delivery`, or `spark-submit` with this file.
Exit code 0: no violation; 2: violations; 3: no violation, but not all could be judged; 1: the audit
could not be made.
"""

import json as json_text
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import Final

import typer
from pyspark.sql import SparkSession

from proxy.plain_text import plain
from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.evidence.ends import record_histories
from spark_jobs.evidence.inputs import Inputs, Portion, Previous, Reader
from spark_jobs.evidence.open_records import check_same, partition_frame, read_so_far
from spark_jobs.evidence.previous_audit import (
    EVIDENCE_VERSION,
    Evidence,
    TableHash,
    check_same_tables,
    read_evidence,
)
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, committed_state, now_ms
from spark_jobs.kafka.sources import LARGE_BYTES, LargeRecords
from spark_jobs.results.report import report_page
from spark_jobs.results.result_tables import what_was_audited, write_tables
from spark_jobs.results.summary import (
    NO_VERDICTS,
    REPORT,
    TABLE,
    Audited,
    History,
    MadeAudit,
    Summary,
    check_place,
    gone_on_from,
    new_name,
    row_of,
    row_of_portion,
    with_waiting,
    writing,
)
from spark_jobs.runtime.errors import MemoryExhausted, RangeRefused, explained
from spark_jobs.runtime.frames import Location, materialising
from spark_jobs.runtime.session import INTERPRETED, job_session
from spark_jobs.verdicts.evaluation import evaluate
from spark_jobs.verdicts.generations import open_rows

DISTRIBUTION: Final = "kafka-delay-proxy"
FEW: Final = 300_000
"""Ingress records for which an audit is short."""
VERY_FEW: Final = 15_000
"""Ingress records for which nothing need be compiled."""
LOOKS: Final = (
    f"Looking for records of more than {LARGE_BYTES // 1_000_000} MB: if there are any, the audit "
    "begins anew, and Spark reads hashes in their place."
)


def audit(spark: SparkSession, job: AuditJob, selection: Selection) -> Summary:
    """Audit, and add what was found to the history in `job.output`, whole or not at all.

    Raises `spark_jobs.runtime.errors.AuditError`.
    """
    while isinstance(found := audit_or_portion(spark, job, selection), int):
        job = replace(job, continue_from=job.output)
    return found


def audit_or_portion(spark: SparkSession, job: AuditJob, selection: Selection) -> Summary | int:
    """Audit as `audit` does. If there is more to read than `job.most`, add a portion of it to the
    history instead, and return how many records it has.

    Where Spark runs out of memory, the audit begins anew and spares it large records.
    Raises `spark_jobs.runtime.errors.AuditError`.
    """
    large, own = LargeRecords(), (job.own.ingress, job.own.dead_letters)
    while True:
        try:
            with explained():
                return _audit(spark, job, selection, large)
        except MemoryExhausted as error:
            print(f"{error.found} {LOOKS}", file=sys.stderr)
            if not large.search(Broker(job.kafka), own):
                raise


def _audit(
    spark: SparkSession, job: AuditJob, selection: Selection, large: LargeRecords
) -> Summary | int:
    """What stays open is written beside the verdicts: the one plans while the other runs."""
    with (
        writing(job.output),
        materialising(spark, job.output) as materialise,
        ThreadPoolExecutor(1) as beside,
    ):
        name, history = new_name(), History(spark, job.output)
        history.tables.sign(name)
        before = _before(spark, job, history)
        broker = Broker(job.kafka)
        committed = _committed(job, broker, before)
        reader = Reader(spark, job.kafka, broker, materialise, large)
        previous = Previous(before.read, history.records) if before else None
        inputs = reader.inputs(committed, job, selection, previous)
        if isinstance(inputs, Portion):
            return _keep(inputs, job, name, history, before)
        histories = record_histories(inputs.requests, inputs.ends)
        partitions = partition_frame(spark, inputs.partitions)
        found = evaluate(
            histories, partitions, inputs.circumstances, materialise, inputs.read_check_backs
        )
        waiting = history.records.waiting_beside(inputs.touched) if inputs.touched else None
        is_kept = not (selection.is_limited or job.again)
        left_open = open_rows(found.carried)
        put = beside.submit(history.records.put, inputs.touched, left_open) if is_kept else None
        audited = what_was_audited(inputs, job.kafka.bootstrap)
        results = write_tables(found.verdicts, audited, name, history.tables)
        control = inputs.control.check(inputs.carried, results.counts.given, found.skipped)
        summary = replace(results.summary, control=tuple(control))
        if waiting is not None:
            summary = with_waiting(summary, waiting)
        page = report_page(replace(results, summary=summary))
        evidence = _evidence(spark, job, name, inputs, committed, before, results.hashes)
        made = row_of(name, summary, page, before, evidence.to_json())
        if put:
            read = read_so_far(inputs.snapshot, job.group, inputs.partitions, inputs.asked_for)
            made |= gone_on_from(read, put.result())
        history.add(made)
        if job.again:
            check_same_tables(job.again, evidence)
    return summary


def _keep(
    portion: Portion, job: AuditJob, name: str, history: History, before: MadeAudit | None
) -> int:
    """Add a portion to the history, for the next audit. Return how many records it has."""
    if before is None:
        history.records.go_back(None)
    at_ms = now_ms()
    version, kept = history.records.gather(portion.requests, portion.ends, at_ms)
    control = tuple(portion.control.check(None, {}, kept))
    audited = Audited(job.kafka.bootstrap, job.own.ingress, at_ms, (), tuple(portion.deleted))
    made = row_of_portion(name, replace(NO_VERDICTS, audited=audited, control=control), before)
    history.add(made | gone_on_from(portion.read, version))
    return portion.count


def _before(spark: SparkSession, job: AuditJob, history: History) -> MadeAudit | None:
    """The audit that this one goes on from; its open records are in the history then."""
    if job.continue_from is None:
        return None
    is_here = job.continue_from == job.output
    source = history if is_here else History(spark, job.continue_from)
    name = job.again and job.again.goes_on_from
    before = source.named(name) if name else source.newest()
    if is_here:
        history.records.go_back(before.open_version)
    else:
        history.records.copy(source.records, before.open_version)
    return before


def _committed(job: AuditJob, broker: Broker, before: MadeAudit | None) -> CommittedState:
    """What the proxy has committed, or had when the audit was made that is made again."""
    if job.again:
        committed = job.again.committed_today(broker)
    else:
        committed = committed_state(broker, job.own, job.group)
    if before:
        check_same(before.read, job.own.ingress, committed.topic_id, job.group)
    return committed


def _evidence(
    spark: SparkSession,
    job: AuditJob,
    name: str,
    inputs: Inputs,
    committed: CommittedState,
    before: MadeAudit | None,
    hashes: Mapping[str, TableHash],
) -> Evidence:
    return Evidence(
        EVIDENCE_VERSION,
        name,
        metadata.version(DISTRIBUTION),
        spark.version,
        job.kafka.bootstrap,
        job.group,
        committed,
        inputs.snapshot,
        inputs.circumstances.at_ms,
        job.limits,
        before.name if before else None,
        hashes,
        job.settled_only,
    )


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
    go_on: arguments.GoOn = False,
    continue_from: arguments.ContinueFrom = None,
    again: arguments.Again = None,
    json: arguments.AsJson = False,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """What became of every record that was written to the ingress: 0 violations, or which."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    selection = Selection(at, since, until, arguments.offset_ranges(offsets or ()))
    limits = arguments.limits(max_lateness or ())
    with readable_errors():
        if go_on and continue_from:
            raise RangeRefused(
                "--continue goes on from the last audit in --output.", "Leave out one."
            )
        settings = kafka_settings(bootstrap, kafka or ())
        job = AuditJob(settings, group, own, target or (), output, continue_from, limits)
        _check(job, selection, go_on=go_on)
        if again:
            evidence = read_evidence(again.read_text("utf-8"))
            job, selection = as_then(job, evidence), Selection(evidence.at_ms)
        check_place(output)
        most = _most_records(Broker(settings), own.ingress)
        how = INTERPRETED if most <= VERY_FEW else {}
        with job_session("audit", master, driver_memory, how, is_short=most <= FEW) as spark:
            if go_on and History(spark, output).has_any:
                job = replace(job, continue_from=output)
            summary = audit(spark, job, selection)
    _print(summary, output, as_json=json)
    raise typer.Exit(summary.exit_code)


def _most_records(broker: Broker, ingress: str) -> int:
    """How many records the ingress may hold; none where it is not there, which is said later."""
    places = [(ingress, number) for number in range(broker.topics().get(ingress, 0))]
    starts, ends = broker.log_starts(places), broker.high_watermarks(places)
    return sum(ends[place] - starts[place] for place in places)


def as_then(job: AuditJob, evidence: Evidence) -> AuditJob:
    """The job of that audit, at the broker and with the output of this one. Raises `RangeRefused`
    where the audit that it went on from is not named."""
    if evidence.goes_on_from and not job.continue_from:
        raise RangeRefused(
            f"That audit went on from {evidence.goes_on_from}.",
            "Name in --continue-from the place that has it.",
        )
    return replace(
        job,
        group=evidence.group,
        own=evidence.committed.own,
        targets=[*evidence.taken.topic_ids],
        continue_from=job.continue_from if evidence.goes_on_from else None,
        limits=evidence.limits,
        again=evidence,
        settled_only=evidence.settled_only,
    )


def _check(job: AuditJob, selection: Selection, *, go_on: bool) -> None:
    if (go_on or job.continue_from) and selection.is_limited:
        raise RangeRefused(
            "--continue and --continue-from begin where the earlier audit ended.",
            "Leave out --since, --until and --offsets.",
        )
    if selection.offsets and (selection.since_ms, selection.until_ms) != (None, None):
        raise RangeRefused("--offsets names the records.", "Leave out --since and --until.")


def _print(summary: Summary, output: Location, *, as_json: bool) -> None:
    if as_json:
        print(json_text.dumps(summary.to_json()))
        return
    for line in summary.lines():
        print(plain(line))
    print(
        f"Report: {output / REPORT}"
        if output.folder
        else f"Report: in {output / TABLE}, column report"
    )


if __name__ == "__main__":
    arguments.run(main)
