"""The continuous audit (`audit --follow`): one audit after the other, until it is stopped.
If very many records are unread, they are read in *portions*, and judged after the last portion.
Totals of all audits are stored with the results, written to a topic, and shown as metrics. Exit
codes: 0 no violation, 2 violations, 1 error (docs/audit.md).
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Event
from typing import Final

import typer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from spark_jobs import arguments
from spark_jobs.arguments import AuditOptions, readable_errors, with_audit_options
from spark_jobs.audit_delivery import audit_or_portion
from spark_jobs.histories.job import AuditJob
from spark_jobs.histories.open_records import TABLE as OPEN_TABLE
from spark_jobs.kafka.broker import Broker, KafkaSettings
from spark_jobs.kafka.snapshot import Selection, now_ms
from spark_jobs.results.result_tables import AUDIT, VERDICTS_TABLE, VIOLATIONS_TABLE
from spark_jobs.results.summary import PORTION, VIOLATED, History, check_place
from spark_jobs.results.summary import TABLE as AUDITS_TABLE
from spark_jobs.runtime.errors import (
    AuditError,
    BrokerUnreachable,
    IngressGrew,
    ResultsRefused,
    StillOpen,
    TopicMissing,
    explained,
)
from spark_jobs.runtime.frames import Schema, local_rows
from spark_jobs.runtime.session import job_session
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.verdict_names import ARRIVED, DESCRIPTIONS, NOT_DONE, PENDING, VIOLATIONS

TABLE: Final = "totals"
TOTALS: Final[Schema] = {"totals": "string"}
"""Columns of the table of totals. It has one row, in JSON."""
BUCKETS_MS: Final = (10, 50, 100, 250, 500, 1_000, 5_000, 30_000, 60_000, 600_000)
PREFIX: Final = "delay_proxy_audit"
KEY: Final = "totals"
TIMEOUT_S: Final = 15.0
TOPIC_CONFIG: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 86_400_000)}


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of all audits in a location."""

    audit: str = ""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Ended records by verdict. A record that a later audit finds violated counts a second time."""
    violations: Mapping[str, int] = field(default_factory=dict)
    late_by: Mapping[str, int] = field(default_factory=dict)
    """For each of BUCKETS_MS, the number of deliveries with at most this lateness."""
    deliveries: int = 0
    late_sum_ms: int = 0
    late: int = 0
    """Number of deliveries beyond the lateness limit, or beyond USUAL_MS if there is no limit."""
    lost: int = 0
    pending: int = 0
    """Number of pending records. This field and the fields below are from the last audit alone."""
    overdue: int = 0
    unread: int = 0
    until_ms: int = 0


def totals_of(history: History) -> Totals:
    """Return the stored totals. Raises `ResultsRefused`."""
    for row in history.tables.read(TABLE, TOTALS).collect():
        try:
            return Totals(**json.loads(row.totals))
        except (TypeError, ValueError) as error:
            raise ResultsRefused(
                f"The totals in {history.place} cannot be read: {error}.",
                f"Remove the folder {TABLE} there. Then all audits are counted again.",
            ) from None
    return Totals()


def count(history: History, before: Totals, audits: Sequence[Row]) -> Totals:
    """Return and store the totals after these audits. Each audit counts once."""
    names = [row.audit for row in audits]
    given = history.tables.read(VERDICTS_TABLE, {**AUDIT, **VERDICTS})
    found = with_verdicts(before, given.where(f.col("audit").isin(names)))
    for row in audits:
        summary = json.loads(row.summary)
        lost = sum(one["end"] - one["start"] for one in summary["unverifiable"])
        found = replace(found, audit=row.audit, lost=found.lost + lost)
        if row.result != PORTION:
            found = replace(
                found,
                pending=sum(summary["verdicts"].get(name, 0) for name in NOT_DONE),
                overdue=summary["overdue"],
                unread=sum(max(0, at["log_end"] - at["next_offset"]) for at in summary["ranges"]),
                until_ms=summary["audited_until_ms"],
            )
    kept = local_rows(given.sparkSession, [{"totals": json.dumps(asdict(found))}], TOTALS)
    history.tables.replace(TABLE, kept)
    return found


def with_verdicts(before: Totals, given: DataFrame) -> Totals:
    """Return the totals with these VERDICTS added, without records that have not ended."""
    late = f.when(f.col("verdict").isin(*ARRIVED), f.greatest("lateness_ms", f.lit(0)))
    rows = (
        given.where(~f.col("verdict").isin(*NOT_DONE))
        .groupBy("verdict", "is_violation")
        .agg(
            f.count("*").alias("records"),
            f.coalesce(f.sum(late), f.lit(0)).alias("late_sum_ms"),
            f.count_if("is_late").alias("late"),
            *[f.count_if(late <= bucket_ms).alias(f"{bucket_ms}") for bucket_ms in BUCKETS_MS],
        )
        .collect()
    )
    broken = {row.verdict: row.records for row in rows if row.is_violation}
    arrived = [row for row in rows if row.verdict in ARRIVED]
    late_by = {f"{one}": sum(row[f"{one}"] for row in arrived) for one in BUCKETS_MS}
    return replace(
        before,
        verdicts=_plus(before.verdicts, {row.verdict: row.records for row in rows}),
        violations=_plus(before.violations, broken),
        late_by=_plus(before.late_by, late_by),
        deliveries=before.deliveries + sum(row.records for row in arrived),
        late_sum_ms=before.late_sum_ms + sum(row.late_sum_ms for row in arrived),
        late=before.late + sum(row.late for row in arrived),
    )


def _plus(before: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + added.get(name, 0) for name in {**before, **added}}


def publish(totals: Totals, settings: KafkaSettings, topic: str) -> None:
    """Write the totals to the topic, as JSON. The last message is the current one."""
    failed: list[KafkaError | None] = []
    producer = Producer(dict(settings.librdkafka))
    value = json.dumps(asdict(totals))
    producer.produce(topic, value, KEY, on_delivery=lambda error, _message: failed.append(error))
    producer.flush(TIMEOUT_S)
    if failed != [None]:
        why = failed[0].str() if failed and failed[0] else "the broker does not answer"
        raise BrokerUnreachable(
            f"The totals cannot be written to {topic}: {why}.",
            "Grant Write on it, or name another --audit-topic. '' means no topic.",
        )


def create_topic(settings: KafkaSettings, topic: str) -> None:
    """Create the topic if it does not exist. Raises `TopicMissing` if the broker refuses."""
    admin = AdminClient(dict(settings.librdkafka))
    wanted = NewTopic(topic, num_partitions=1, config=TOPIC_CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    except KafkaException as failed:
        error = failed.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"The topic {topic} cannot be created: {error.str()}.",
                "Create it (cleanup.policy=compact), or name another --audit-topic. '' means no "
                "topic.",
            ) from None


class Gauges(Collector):
    """The totals as metrics. Until there are totals, there are no metrics."""

    def __init__(self) -> None:
        self.totals: Totals | None = None

    def serve(self, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(self)
        try:
            start_http_server(port, host, registry)
        except OSError as error:
            raise AuditError(
                f"The metrics cannot be served on {host}:{port}: {error}.",
                "Name another --metrics-port, or 0 for none.",
            ) from None

    def collect(self) -> Iterator[Metric]:
        totals = self.totals
        if totals is None:
            return
        for name, text, found, names in (
            (
                "verdicts",
                "Ended records by verdict. A record whose violation is found later counts again.",
                totals.verdicts,
                DESCRIPTIONS,
            ),
            (
                "violations",
                "Violations by verdict. Alert on any increase.",
                totals.violations,
                VIOLATIONS,
            ),
        ):
            family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["verdict"])
            for verdict in names:
                if verdict != PENDING:
                    family.add_metric([verdict], found.get(verdict, 0))
            yield family
        late = HistogramMetricFamily(
            f"{PREFIX}_lateness_seconds", "Delivery minus due, of all deliveries."
        )
        buckets = [(str(one / 1000), totals.late_by.get(str(one), 0)) for one in BUCKETS_MS]
        late.add_metric([], [*buckets, ("+Inf", totals.deliveries)], totals.late_sum_ms / 1000)
        yield late
        until_s = totals.until_ms / 1000
        for name, text, value in (
            ("pending", "Records that the last audit left open.", totals.pending),
            ("unread", "Ingress records that the proxy has not read.", totals.unread),
            ("lost_offsets", "Ingress offsets deleted before the audit read them.", totals.lost),
            (
                "overdue",
                "Records overdue by more than --max-lateness, or by a minute without this option.",
                totals.overdue,
            ),
            (
                "audited_until_seconds",
                "Epoch seconds up to which all records are judged. Alert if it stands still.",
                until_s,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


LOOK_EVERY_S: Final = 1.0
AGAIN_AFTER_S: Final = 10.0
TIDY_EVERY: Final = 100
"""After this many audits and portions, small files are merged and old rows are removed."""
PASSES: Final = (BrokerUnreachable, IngressGrew, StillOpen)
"""After one of these errors the audit is tried again."""
OF_FOLLOW: Final = (
    f"(result = '{PORTION}' OR get_json_object(repeat_inputs, '$.settled_only') = 'true')"
)
"""SQL: whether a continuous audit wrote a row of `audits`."""


class Rounds:
    """Audits of one job in one session. `tell` gets the totals after each audit.
    Verdicts are kept for `keep_ms`, violations for ever.
    """

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
        """Audit, or read a portion. Return True after a portion. Raises `AuditError`."""
        with explained():
            if not self._done:
                self._count()
            goes_on = self._job.output if self._history.has_any else None
            job = replace(self._job, continue_from=goes_on)
            found = audit_or_portion(self._spark, job, Selection())
            self._count()
            self._done += 1
            if self._done % TIDY_EVERY == 0:
                self._tidy()
        totals = self.totals
        if isinstance(found, int):
            print(f"{totals.audit}: {found:,} records read, to be judged later", flush=True)
            return True
        judged, broken = sum(totals.verdicts.values()), sum(totals.violations.values())
        print(
            f"{totals.audit}: {judged:,} judged, {totals.pending:,} pending, {broken:,} violations",
            flush=True,
        )
        return False

    def _count(self) -> None:
        """Count new audits. Also count an audit whose process ended before it could count.
        Name on stderr the ranges that were deleted before they were read.
        """
        before, ingress = totals_of(self._history), self._job.own.ingress
        rows = self._history.audits.where("read IS NOT NULL").where(f.col("audit") > before.audit)
        audits = rows.select("audit", "result", "summary").orderBy("audit").collect()
        for one in (one for row in audits for one in json.loads(row.summary)["unverifiable"]):
            print(
                f"Retention has deleted records of {ingress}, partition {one['partition']}, from "
                f"offset {one['start']} to {one['end'] - 1} before they were read. They are "
                "unverifiable.",
                file=sys.stderr,
                flush=True,
            )
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


@with_audit_options
def main(
    options: AuditOptions,
    audit_topic: arguments.AuditTopic = "timer.audit",
    every: arguments.Every = 60,
    max_offsets: arguments.MaxOffsets = 2_000_000,
    keep: arguments.KeepHours = 24,
    metrics_host: arguments.MetricsHost = "127.0.0.1",
    metrics_port: arguments.MetricsPort = 9465,
) -> None:
    """Audit continuously until stopped. Start after the last audit in --output."""
    with readable_errors():
        job = replace(options.job(), settled_only=True, most=max_offsets)
        check_place(job.output)
        Broker(job.kafka).topics()
        gauges = Gauges()
        if metrics_port:
            gauges.serve(metrics_host, metrics_port)
        if audit_topic:
            create_topic(job.kafka, audit_topic)

        def tell(totals: Totals) -> None:
            gauges.totals = totals
            if audit_topic:
                publish(totals, job.kafka, audit_topic)

        with job_session("continuous audit", options.master, options.driver_memory) as spark:
            rounds = Rounds(spark, job, keep * 3_600_000, tell)
            address = f"http://{metrics_host}:{metrics_port}/metrics"
            at_metrics = f"; metrics at {address}" if metrics_port else ""
            print(
                f"Auditing {job.own.ingress} and the group {job.group} every {every} s, results in "
                f"{job.output}{at_metrics}. The first audit reads everything and takes a minute "
                "or more. Ctrl-C stops the audits. The next start continues them.",
                flush=True,
            )
            run_until_stopped(rounds.do, every, spark.sparkContext.cancelAllJobs)
    raise typer.Exit(VIOLATED if rounds.totals.violations else 0)


def run_until_stopped(
    do: Callable[[], bool],
    every_s: float,
    interrupt: Callable[[], None],
    again_after_s: float = AGAIN_AFTER_S,
) -> None:
    """Call `do` every `every_s` until SIGTERM or SIGINT. An interrupted round leaves no results.
    If `do` returns True, the next round begins immediately. After an error in PASSES, the round is
    tried again. After a signal, `interrupt` is called repeatedly, because Spark cannot interrupt a
    query that is being planned.
    """
    stopping = Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stopping.set())
    with ThreadPoolExecutor(1) as beside:
        while not stopping.is_set():
            began_s = time.monotonic()
            running = beside.submit(do)
            while not running.done():
                with suppress(Exception):
                    running.exception(LOOK_EVERY_S)
                if stopping.is_set():
                    with suppress(Py4JError, OSError):
                        interrupt()
            if stopping.is_set():
                return
            try:
                wait_s = 0.0 if running.result() else began_s + every_s - time.monotonic()
            except PASSES as error:
                print(f"{error} (The audit tries again by itself.)", file=sys.stderr, flush=True)
                wait_s = again_after_s
            stopping.wait(max(0.0, wait_s))


if __name__ == "__main__":
    arguments.run(main)
