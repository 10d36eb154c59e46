"""The audit that goes on: verdicts as records end, by Structured Streaming (docs/audit.md).

`kafka-delay-proxy audit --follow`, `python -m spark_jobs.continuous_audit`, or `spark-submit` with
this file. Runs until it is stopped. Exit code 0: no violation; 2: violations; 1: it had to end.
"""

import signal
import sys
from contextlib import suppress
from threading import Event
from typing import Final

import typer

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.continuous.batches import Publication
from spark_jobs.continuous.continuous_audit import ContinuousAudit, Pace
from spark_jobs.continuous.gauges import Gauges
from spark_jobs.continuous.state import check_state_place
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.results.summary import VIOLATED
from spark_jobs.runtime.errors import BrokerUnreachable, SparkUnusable
from spark_jobs.runtime.session import job_session

LOOK_EVERY_S: Final = 1
AGAIN_AFTER_S: Final = 10.0


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
    window: arguments.WindowLength = 60,
    keep: arguments.KeepHours = 24,
    metrics_host: arguments.MetricsHost = "127.0.0.1",
    metrics_port: arguments.MetricsPort = 9465,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """Audit as records end, until stopped. Begins again where it was stopped."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    limits = arguments.limits(max_lateness or ())
    publication = Publication(audit_topic or None, window * 1000, keep * 3_600_000)
    with readable_errors():
        settings = kafka_settings(bootstrap, kafka or ())
        job = AuditJob(settings, group, own, target or ("*",), output, None, limits)
        check_state_place(output)
        Broker(settings).topics()
        gauges = Gauges()
        if metrics_port:
            gauges.serve(metrics_host, metrics_port)
        metrics_at = f"http://{metrics_host}:{metrics_port}/metrics" if metrics_port else ""
        with job_session("continuous audit", master, driver_memory) as spark:
            pace = Pace(every, max_offsets)
            audit = ContinuousAudit(spark, job, publication, pace, gauges)
            audit.start()
            _say_what_comes(job, every, metrics_at)
            run_until_stopped(audit)
    tally = audit.tally
    raise typer.Exit(VIOLATED if tally and tally.totals.violations else 0)


def _say_what_comes(job: AuditJob, every_s: int, metrics_at: str) -> None:
    at_metrics = f"; metrics at {metrics_at}" if metrics_at else ""
    print(
        f"Auditing {job.own.ingress} and the group {job.group} every {every_s} s, state in "
        f"{job.output}{at_metrics}. The first batch reads all there is and takes a minute or "
        "more; Ctrl-C stops it, started again it goes on.",
        flush=True,
    )


def run_until_stopped(audit: ContinuousAudit, again_after_s: float = AGAIN_AFTER_S) -> None:
    """Begin again after the broker was away: nothing is lost by that. Raises what else ends it.

    A signal to the whole group ends Spark's Java process, too: then there is nothing to stop.
    """
    stopping = Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stopping.set())
    is_going = True
    while not stopping.is_set():
        try:
            if not is_going:
                audit.start()
                is_going = True
            audit.wait(LOOK_EVERY_S)
        except BrokerUnreachable as error:
            is_going = False
            print(f"{error} (Meanwhile it is tried again by itself.)", file=sys.stderr, flush=True)
            stopping.wait(again_after_s)
        except SparkUnusable:
            if not stopping.is_set():
                raise
    with suppress(SparkUnusable):
        audit.stop()


if __name__ == "__main__":
    arguments.run(main)
