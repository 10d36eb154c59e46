"""The audit that goes on: verdicts as records end, by Structured Streaming (docs/audit.md).

`kafka-delay-proxy audit --follow`, `python -m spark_jobs.continuous_audit`, or `spark-submit` with
this file. Runs until it is stopped. Exit code 0: no violation; 2: violations; 1: it had to end.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from threading import Event
from typing import Final

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import arguments
from spark_jobs.arguments import readable_errors
from spark_jobs.audit_delivery import VIOLATED, Order
from spark_jobs.continuous.arrivals import arrivals, subscription
from spark_jobs.continuous.audit_topic import make_topic
from spark_jobs.continuous.batches import Batches, Telling
from spark_jobs.continuous.gauges import Gauges
from spark_jobs.continuous.state import Tally, check_state_folder
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.runtime.errors import BrokerUnreachable, SparkUnusable
from spark_jobs.runtime.failures import explained
from spark_jobs.runtime.session import spark_session

CHECKPOINT: Final = "checkpoint"
LOOK_EVERY_S: Final = 1
AGAIN_AFTER_S: Final = 10.0
STOPPED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: "
    "java.lang.InterruptedException"
)
"""By which Spark knows that a batch ended because the query was stopped, and is no error."""


class BatchUndone(Exception):
    """All that Spark needs to know of why a batch ended early."""


class ContinuousAudit:
    """A streaming query that audits, in a session that is there. Its state is `order.output`."""

    def __init__(
        self, spark: SparkSession, order: Order, telling: Telling, every_s: int, gauges: Gauges
    ) -> None:
        self._spark, self._order, self._every_s = spark, order, every_s
        self._telling, self._gauges = telling, gauges
        self._failed: Exception | None = None
        self._is_stopped = False
        self._query: StreamingQuery | None = None
        self.tally: Tally | None = None

    def start(self) -> None:
        """Begin, or go on where the last one ended. Raises `AuditError`."""
        order, topic = self._order, self._telling.audit_topic
        self._failed, self._is_stopped = None, False
        if topic:
            make_topic(order.kafka, topic)
        batches = Batches(self._spark, order, self._telling, self._show, self._go_on)
        self._gauges.show(batches.begin())
        subscribed = subscription(order.own, order.targets, topic)
        stream = arrivals(self._spark, order.kafka, subscribed).writeStream
        self._query = (
            stream.foreachBatch(lambda arrived, number: self._do(batches, arrived, number))
            .option("checkpointLocation", f"file://{order.output.absolute() / CHECKPOINT}")
            .trigger(processingTime=f"{self._every_s} seconds")
            .start()
        )

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended as it was told to, within so many seconds. Raises what ended it."""
        assert self._query is not None, "it has not been started"
        with explained():
            try:
                has_ended = bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type]
            except Exception:
                if self._failed is not None:
                    raise self._failed from None
                raise
        if has_ended and not self._is_stopped:
            raise self._failed or SparkUnusable(
                "The streaming query ended and did not say why.", "Start the audit again."
            )
        return has_ended

    def stop(self) -> None:
        """End it, in the midst of a batch if there is one: that will be done again."""
        self._is_stopped = True
        if self._query is not None:
            with explained():
                self._query.stop()

    def _do(self, batches: Batches, arrived: DataFrame, number: int) -> None:
        """Spark matches what is thrown here with a regular expression that overflows its stack on
        a long text, such as another Java exception, and then ends without a word: so it is kept."""
        try:
            with explained():
                batches.do(arrived, number)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised in `wait`)
            self._failed = error
            raise BatchUndone(STOPPED if self._is_stopped else f"batch {number}") from None

    def _go_on(self) -> None:
        """Spark interrupts its own work only, and while a batch is planned there is none."""
        if self._is_stopped:
            raise BatchUndone(STOPPED)

    def _show(self, number: int, tally: Tally) -> None:
        self.tally = tally
        self._gauges.show(tally)
        judged, broken = sum(tally.totals.verdicts.values()), sum(tally.totals.violations.values())
        waiting = tally.totals.pending
        print(
            f"batch {number}: {judged:,} judged, {waiting:,} pending, {broken:,} violations",
            flush=True,
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
    audit_topic: arguments.AuditTopic = "timer.audit",
    every: arguments.Every = 60,
    window: arguments.WindowLength = 60,
    keep: arguments.KeepHours = 24,
    metrics_host: arguments.MetricsHost = "127.0.0.1",
    metrics_port: arguments.MetricsPort = 9465,
    master: arguments.Master = "local[*]",
    driver_memory: arguments.DriverMemory = "4g",
) -> None:
    """Audit as records end, until stopped. Begins again where it was stopped."""
    own = OwnTopics(ingress, dead_letters, outcomes, settings_topic)
    telling = Telling(audit_topic or None, window * 1000, keep * 3_600_000)
    with readable_errors():
        settings = kafka_settings(bootstrap, kafka or ())
        order = Order(settings, group, own, target or ("*",), output)
        check_state_folder(output)
        Broker(settings).topics()
        gauges = Gauges()
        if metrics_port:
            gauges.serve(metrics_host, metrics_port)
        spark = spark_session("continuous audit", master, driver_memory)
        audit = ContinuousAudit(spark, order, telling, every, gauges)
        audit.start()
        _say_what_comes(
            order, every, f"http://{metrics_host}:{metrics_port}/metrics" if metrics_port else ""
        )
        run_until_stopped(audit)
    tally = audit.tally
    raise typer.Exit(VIOLATED if tally and tally.totals.violations else 0)


def _say_what_comes(order: Order, every_s: int, metrics_at: str) -> None:
    at_metrics = f"; metrics at {metrics_at}" if metrics_at else ""
    print(
        f"Auditing {order.own.ingress} and the group {order.group} every {every_s} s, state in "
        f"{order.output}{at_metrics}. The first batch reads all there is and takes a minute or "
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
