"""The audit that goes on: one audit after the other, each from where the last one ended.

`kafka-delay-proxy audit --follow`, `python -m spark_jobs.continuous_audit`, or `spark-submit` with
this file (docs/audit.md). Runs until it is stopped. Exit code 0: no violation; 2: violations; 1: it
had to end.
"""

import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import Final

import typer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.audit_delivery import audit_or_portion
from spark_jobs.continuous import (
    TABLE,
    Gauges,
    Totals,
    count,
    create_topic,
    deleted,
    publish,
    totals_of,
    uncounted,
)
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.evidence.open_records import TABLE as OPEN_TABLE
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, now_ms
from spark_jobs.results.result_tables import VERDICTS_TABLE, VIOLATIONS_TABLE
from spark_jobs.results.summary import PORTION, VIOLATED, History, check_place
from spark_jobs.results.summary import TABLE as AUDITS_TABLE
from spark_jobs.runtime.errors import BrokerUnreachable, IngressGrew, StillOpen, explained
from spark_jobs.runtime.frames import local_rows
from spark_jobs.runtime.session import job_session

LOOK_EVERY_S: Final = 1.0
AGAIN_AFTER_S: Final = 10.0
TIDY_EVERY: Final = 100
"""Audits and portions: then small files are put together, and what is old is removed."""
PASSES: Final = (BrokerUnreachable, IngressGrew, StillOpen)
"""After these errors the audit is tried again."""
OF_FOLLOW: Final = f"(result = '{PORTION}' OR get_json_object(evidence, '$.settled_only') = 'true')"
"""SQL: whether a row of `audits` was written here, and not by an audit that somebody asked for."""


class Rounds:
    """Audits of one job, one after the other, in a session that is there. `tell` gets the totals
    after each. Verdicts stay for `keep_ms`, violations for good."""

    def __init__(
        self,
        spark: SparkSession,
        job: AuditJob,
        keep_ms: int,
        tell: Callable[[Totals], None],
    ) -> None:
        self._spark, self._job, self._keep_ms, self._tell = spark, job, keep_ms, tell
        self._history, self._done = History(spark, job.output), 0
        self.totals = Totals()

    def do(self) -> bool:
        """Audit, or read a portion. Return whether there is more to read at once.

        Raises the errors of `spark_jobs.runtime.errors`.
        """
        with explained():
            if not self._done:
                self._history.check_no_old_state()
                self._count()
            goes_on = self._job.output if self._history.has_any else None
            job = replace(self._job, continue_from=goes_on)
            found = audit_or_portion(self._spark, job, Selection())
            self._count()
            self._done += 1
            if self._done % TIDY_EVERY == 0:
                self._tidy()
        if isinstance(found, int):
            print(f"{self.totals.audit}: {found:,} records read, to be judged later", flush=True)
            return True
        _say(self.totals)
        return False

    def _count(self) -> None:
        """Count what is not counted yet: the last audit, also if the process ended after it."""
        before = totals_of(self._history)
        audits = uncounted(self._history, before)
        for row in audits:
            for sentence in deleted(self._job.own.ingress, row):
                print(sentence, file=sys.stderr, flush=True)
        self.totals = count(self._history, before, audits) if audits else before
        self._tell(self.totals)

    def _tidy(self) -> None:
        tables = self._history.tables
        old = self._history.audits.where(OF_FOLLOW).where(
            f"at_ms < {now_ms() - self._keep_ms} AND audit < '{self.totals.audit}'"
        )
        rows = [row.asDict() for row in old.select("audit", "violations").collect()]
        names = local_rows(self._spark, rows, {"audit": "string", "violations": "bigint"})
        tables.delete_matching(VERDICTS_TABLE, names, "here.audit = there.audit")
        sound = names.where("violations = 0")
        tables.delete_matching(AUDITS_TABLE, sound, "here.audit = there.audit")
        for name in (VERDICTS_TABLE, VIOLATIONS_TABLE, AUDITS_TABLE, OPEN_TABLE, TABLE):
            if tables.has(name):
                tables.tidy(name)


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
    max_lateness: arguments.MaxLateness = None,
    audit_topic: arguments.AuditTopic = "timer.audit",
    every: arguments.Every = 60,
    max_offsets: arguments.MaxOffsets = 2_000_000,
    keep: arguments.KeepHours = 24,
    metrics_host: arguments.MetricsHost = "127.0.0.1",
    metrics_port: arguments.MetricsPort = 9465,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """Audit as records end, until stopped. Goes on from the last audit in --output."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    limits = arguments.limits(max_lateness or ())
    with readable_errors():
        settings = kafka_settings(bootstrap, kafka or ())
        job = AuditJob(settings, group, own, target or (), output, None, limits)
        job = replace(job, settled_only=True, most=max_offsets)
        check_place(output)
        Broker(settings).topics()
        gauges = Gauges()
        if metrics_port:
            gauges.serve(metrics_host, metrics_port)
        metrics_at = f"http://{metrics_host}:{metrics_port}/metrics" if metrics_port else ""
        if audit_topic:
            create_topic(settings, audit_topic)

        def tell(totals: Totals) -> None:
            gauges.totals = totals
            if audit_topic:
                publish(totals, settings, audit_topic)

        with job_session("continuous audit", master, driver_memory) as spark:
            rounds = Rounds(spark, job, keep * 3_600_000, tell)
            _say_what_comes(job, every, metrics_at)
            run_until_stopped(rounds.do, every, spark.sparkContext.cancelAllJobs)
    raise typer.Exit(VIOLATED if rounds.totals.violations else 0)


def run_until_stopped(
    do: Callable[[], bool],
    every_s: float,
    interrupt: Callable[[], None],
    again_after_s: float = AGAIN_AFTER_S,
) -> None:
    """Do a round every `every_s` until SIGTERM or SIGINT. One that is interrupted leaves nothing.

    Begin the next one at once if `do` says that there is more to read. Try again after an error
    that passes. Raise any other. A signal to the whole group ends Spark's Java process, too: then
    there is nothing to interrupt.
    """
    stopping = Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stopping.set())
    with ThreadPoolExecutor(1) as beside:
        while not stopping.is_set():
            began_s = time.monotonic()
            running = beside.submit(do)
            _await(running, stopping, interrupt)
            if stopping.is_set():
                return
            try:
                wait_s = 0.0 if running.result() else began_s + every_s - time.monotonic()
            except PASSES as error:
                print(f"{error} (It is tried again by itself.)", file=sys.stderr, flush=True)
                wait_s = again_after_s
            stopping.wait(max(0.0, wait_s))


def _await(running: "Future[bool]", stopping: Event, interrupt: Callable[[], None]) -> None:
    """Wait for the round. Interrupt it as long as it runs after a signal: Spark interrupts only its
    own work, and while a query is planned there is none."""
    while not running.done():
        with suppress(Exception):
            running.exception(LOOK_EVERY_S)
        if stopping.is_set():
            with suppress(Py4JError, OSError):
                interrupt()


def _say_what_comes(job: AuditJob, every_s: int, metrics_at: str) -> None:
    at_metrics = f"; metrics at {metrics_at}" if metrics_at else ""
    print(
        f"Auditing {job.own.ingress} and the group {job.group} every {every_s} s, results in "
        f"{job.output}{at_metrics}. The first audit reads all there is and takes a minute or "
        "more; Ctrl-C stops it, started again it goes on.",
        flush=True,
    )


def _say(totals: Totals) -> None:
    judged, broken = sum(totals.verdicts.values()), sum(totals.violations.values())
    print(
        f"{totals.audit}: {judged:,} judged, {totals.pending:,} pending, {broken:,} violations",
        flush=True,
    )


if __name__ == "__main__":
    arguments.run(main)
