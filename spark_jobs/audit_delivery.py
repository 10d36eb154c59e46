"""The audit job: a verdict for each ingress record, from the topics alone (docs/audit.md).
Run it with `kafka-delay-proxy audit`, `python -m spark_jobs.audit_delivery` or `spark-submit`. Exit
codes: 0 no violation, 2 violations, 3 no violation but not all judged, 1 no audit.
"""

import json as json_text
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import Final

import typer
from pyspark.sql import SparkSession

from proxy.logs import plain
from spark_jobs import arguments
from spark_jobs.arguments import AuditOptions, readable_errors, with_audit_options
from spark_jobs.histories.ends import record_histories
from spark_jobs.histories.job import AuditJob, RepeatInputs, check_same_tables, read_repeat_inputs
from spark_jobs.histories.reader import Portion, Reader, partition_frame, read_so_far
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.snapshot import CommittedState, Selection, committed_state, now_ms
from spark_jobs.kafka.sources import LARGE_BYTES, LargeRecords
from spark_jobs.results.report import report_page
from spark_jobs.results.result_tables import what_was_audited, write_tables
from spark_jobs.results.summary import (
    NO_VERDICTS,
    PORTION,
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
    with_pending,
    writing,
)
from spark_jobs.runtime.errors import (
    BEGIN_ANEW,
    MemoryExhausted,
    NotOurs,
    RangeRefused,
    explained,
)
from spark_jobs.runtime.frames import Location, materialising
from spark_jobs.runtime.session import INTERPRETED, job_session
from spark_jobs.verdicts.evaluation import evaluate, in_scope
from spark_jobs.verdicts.generations import open_rows

FEW: Final = 300_000
"""For at most this many ingress records, Java runs with one compiler (`is_short`)."""
VERY_FEW: Final = 15_000
"""For at most this many ingress records, Spark interprets its plans instead of compiling them."""


def audit(spark: SparkSession, job: AuditJob, selection: Selection) -> Summary:
    """Audit, and add the results to `job.output` completely or not at all. Raises `AuditError`."""
    while isinstance(found := audit_or_portion(spark, job, selection), int):
        job = replace(job, continue_from=job.output)
    return found


def audit_or_portion(spark: SparkSession, job: AuditJob, selection: Selection) -> Summary | int:
    """Audit, or read a portion of `job.most` records and return its size. Raises `AuditError`.
    If Spark runs out of memory, the audit starts again without large records.
    """
    large, own = LargeRecords(), (job.own.ingress, job.own.dead_letters)
    while True:
        try:
            with explained():
                return _audit(spark, job, selection, large)
        except MemoryExhausted as error:
            print(
                f"{error.found} Looking for records of more than {LARGE_BYTES // 1_000_000} MB: if "
                "there are any, the audit begins again, and Spark reads their hashes instead.",
                file=sys.stderr,
            )
            if not large.search(Broker(job.kafka), own):
                raise


def _audit(
    spark: SparkSession, job: AuditJob, selection: Selection, large: LargeRecords
) -> Summary | int:
    """Audit once. Two threads write open records and verdicts, so that Spark plans one query while
    it runs the other."""
    with (
        writing(job.output),
        materialising(spark, job.output) as materialise,
        ThreadPoolExecutor(1) as beside,
    ):
        name, history = new_name(), History(spark, job.output)
        history.tables.sign(name)
        before = _before(spark, job, history)
        committed = _committed(job, before)
        read = before.read if before else None
        reader = Reader(spark, job, committed, read, materialise, large)
        inputs = reader.inputs(selection, history.records)
        if isinstance(inputs, Portion):
            return _keep(inputs, job, name, history, before)
        histories = record_histories(inputs.requests, inputs.ends)
        scoped = in_scope(partition_frame(spark, inputs.partitions), inputs.scope)
        found = evaluate(histories, scoped, materialise, inputs.read_check_backs)
        pending = history.records.pending_beside(inputs.touched) if inputs.touched else None
        is_kept = not (selection.is_limited or job.again)
        left_open = open_rows(found.carried)
        put = beside.submit(history.records.put, inputs.touched, left_open) if is_kept else None
        audited = what_was_audited(inputs, job.kafka.bootstrap)
        results = write_tables(found.verdicts, audited, name, history.tables)
        control = inputs.control.check(inputs.carried, results.counts.given, found.skipped)
        summary = replace(results.summary, control=tuple(control))
        if pending is not None:
            summary = with_pending(summary, pending)
        page = report_page(replace(results, summary=summary))
        inputs_now = RepeatInputs(
            name,
            metadata.version("kafka-delay-proxy"),
            spark.version,
            job.kafka.bootstrap,
            job.group,
            committed,
            inputs.snapshot,
            inputs.scope.at_ms,
            job.limits,
            before.name if before else None,
            results.hashes,
            job.settled_only,
        )
        made = row_of(name, summary, page, before, inputs_now.to_json())
        if put:
            now = read_so_far(inputs.snapshot, job.group, inputs.partitions, inputs.asked_for)
            made |= gone_on_from(now, put.result())
        history.add(made)
        if job.again:
            check_same_tables(job.again, inputs_now)
    return summary


def _keep(
    portion: Portion, job: AuditJob, name: str, history: History, before: MadeAudit | None
) -> int:
    if before is None:
        history.records.go_back(None)
    at_ms = now_ms()
    version, kept = history.records.gather(portion.requests, portion.ends, at_ms)
    control = tuple(portion.control.check(None, {}, kept))
    audited = Audited(job.kafka.bootstrap, job.own.ingress, at_ms, (), tuple(portion.deleted))
    made = row_of(name, replace(NO_VERDICTS, audited=audited, control=control), "", before)
    history.add(made | gone_on_from(portion.read, version) | {"result": PORTION})
    return portion.count


def _before(spark: SparkSession, job: AuditJob, history: History) -> MadeAudit | None:
    if job.continue_from is None:
        return None
    is_here = job.continue_from == job.output
    source = history if is_here else History(spark, job.continue_from)
    before = source.newest(job.again.goes_on_from if job.again else None)
    if is_here:
        history.records.go_back(before.open_version)
    else:
        history.records.copy(source.records, before.open_version)
    return before


def _committed(job: AuditJob, before: MadeAudit | None) -> CommittedState:
    """Return the committed state. Raises `NotOurs` if `before` audited another topic or group."""
    broker, own = Broker(job.kafka), job.own
    if job.again:
        found = job.again.committed_today(broker)
    else:
        found = committed_state(broker, own, job.group)
    then = before and before.read
    if then and (then.ingress_topic, then.topic_id, then.group) != (
        own.ingress,
        found.topic_id,
        job.group,
    ):
        raise NotOurs(
            f"The earlier audit was of the group {then.group} at {then.ingress_topic} (topic id "
            f"{then.topic_id}), this one is of {job.group} at {own.ingress} ({found.topic_id}).",
            BEGIN_ANEW,
        )
    return found


@with_audit_options
def main(
    options: AuditOptions,
    at: arguments.At = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    offsets: arguments.Offsets = None,
    go_on: arguments.GoOn = False,
    continue_from: arguments.ContinueFrom = None,
    again: arguments.Again = None,
    json: arguments.AsJson = False,
) -> None:
    """Prove how every ingress record ended, and name each violation."""
    selection = Selection(at, since, until, arguments.offset_ranges(offsets or ()))
    with readable_errors():
        if go_on and continue_from:
            raise RangeRefused(
                "--continue always continues the last audit in --output.",
                "Leave out --continue or --continue-from.",
            )
        job = replace(options.job(), continue_from=continue_from)
        _check(job, selection, go_on=go_on)
        if again:
            then = read_repeat_inputs(again.read_text("utf-8"))
            job, selection = job.as_in(then), Selection(then.at_ms)
        check_place(job.output)
        most = _most_records(Broker(job.kafka), job.own.ingress)
        how = INTERPRETED if most <= VERY_FEW else {}
        resources = options.master, options.driver_memory, how
        with job_session("audit", *resources, is_short=most <= FEW) as spark:
            if go_on and History(spark, job.output).has_any:
                job = replace(job, continue_from=job.output)
            summary = audit(spark, job, selection)
    _print(summary, job.output, as_json=json)
    raise typer.Exit(summary.exit_code)


def _most_records(broker: Broker, ingress: str) -> int:
    places = [(ingress, number) for number in range(broker.topics().get(ingress, 0))]
    starts, ends = broker.log_starts(places), broker.high_watermarks(places)
    return sum(ends[place] - starts[place] for place in places)


def _check(job: AuditJob, selection: Selection, *, go_on: bool) -> None:
    if (go_on or job.continue_from) and selection.is_limited:
        raise RangeRefused(
            "--continue and --continue-from begin at the end of the earlier audit.",
            "Leave out --since, --until and --offsets.",
        )
    if selection.offsets and (selection.since_ms, selection.until_ms) != (None, None):
        raise RangeRefused(
            "--offsets already selects the records.", "Leave out --since and --until."
        )


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
