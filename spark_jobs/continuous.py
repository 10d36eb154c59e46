"""What the audits of `audit --follow` have counted: kept beside them, published, and as metrics.

May use all rooms below. Every metric's name begins with `delay_proxy_audit_`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

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
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from spark_jobs.kafka.broker import KafkaSettings
from spark_jobs.results.result_tables import AUDIT, VERDICTS_TABLE
from spark_jobs.results.summary import PORTION, History
from spark_jobs.runtime.errors import AuditError, BrokerUnreachable, ResultsRefused, TopicMissing
from spark_jobs.runtime.frames import Schema, local_rows
from spark_jobs.verdicts.evaluation import VERDICTS
from spark_jobs.verdicts.verdict_names import ARRIVED, MEANINGS, NOT_DONE, PENDING, VIOLATIONS

TABLE: Final = "totals"
TOTALS: Final[Schema] = {"totals": "string"}
"""One row, in JSON."""
BUCKETS_MS: Final = (10, 50, 100, 250, 500, 1_000, 5_000, 30_000, 60_000, 600_000)
PREFIX: Final = "delay_proxy_audit"
KEY: Final = "totals"
TIMEOUT_S: Final = 15.0
TOPIC_CONFIG: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 86_400_000)}


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of all audits of a place."""

    audit: str = ""
    """The name of the last audit that is counted."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Records that have ended, by verdict. A violation of a record that had its verdict before
    counts beside that verdict."""
    violations: Mapping[str, int] = field(default_factory=dict)
    late_by: Mapping[str, int] = field(default_factory=dict)
    """Deliveries that were at most as many ms late as the key says (BUCKETS_MS)."""
    deliveries: int = 0
    late_sum_ms: int = 0
    late: int = 0
    """Deliveries that were later than is allowed, or usual."""
    lost: int = 0
    """Ingress offsets that were deleted before an audit read them."""
    pending: int = 0
    """Of the last audit, like the figures below."""
    overdue: int = 0
    unread: int = 0
    until_ms: int = 0


def totals_of(history: History) -> Totals:
    """Return what the place holds. Raises `ResultsRefused`."""
    for row in history.tables.read(TABLE, TOTALS).collect():
        try:
            return Totals(**json.loads(row.totals))
        except (TypeError, ValueError) as error:
            raise ResultsRefused(
                f"The totals in {history.place} cannot be read: {error}.",
                f"Remove its folder {TABLE}: all audits there are counted again.",
            ) from None
    return Totals()


def uncounted(history: History, before: Totals) -> list[Row]:
    """Return audit, result and summary of each audit that is not counted yet, in order."""
    rows = history.audits.where("read IS NOT NULL").where(f.col("audit") > before.audit)
    return rows.select("audit", "result", "summary").orderBy("audit").collect()


def deleted(ingress: str, audit: Row) -> Iterator[str]:
    """Yield a sentence for each range that nobody can read any more."""
    for one in json.loads(audit.summary)["unverifiable"]:
        yield (
            f"Retention has deleted {ingress}, partition {one['partition']}, from offset "
            f"{one['start']} to {one['end'] - 1} before that was read: what was asked for there is "
            "unverifiable."
        )


def count(history: History, before: Totals, audits: Iterable[Row]) -> Totals:
    """Return the totals after these audits. Keep them in the place: an audit counts once."""
    names = [row.audit for row in audits]
    given = history.tables.read(VERDICTS_TABLE, {**AUDIT, **VERDICTS})
    found = with_verdicts(before, given.where(f.col("audit").isin(names)))
    for row in audits:
        found = _with_summary(found, row)
    kept = local_rows(given.sparkSession, [{"totals": json.dumps(asdict(found))}], TOTALS)
    history.tables.replace(TABLE, kept)
    return found


def with_verdicts(before: Totals, given: DataFrame) -> Totals:
    """Return the totals with these VERDICTS. Records that have not ended are left out."""
    late = f.when(f.col("verdict").isin(*ARRIVED), f.greatest("lateness_ms", f.lit(0)))
    rows = (
        given.where(~f.col("verdict").isin(*NOT_DONE))
        .groupBy("verdict", "is_violation")
        .agg(
            f.count("*").alias("records"),
            f.coalesce(f.sum(late), f.lit(0)).alias("late_sum_ms"),
            f.count_if("is_late").alias("late"),
            *[
                f.count_if(late <= bucket_ms).alias(f"within_{bucket_ms}")
                for bucket_ms in BUCKETS_MS
            ],
        )
        .collect()
    )
    arrived = [row for row in rows if row.verdict in ARRIVED]
    late_by = {str(one): sum(row[f"within_{one}"] for row in arrived) for one in BUCKETS_MS}
    return replace(
        before,
        verdicts=_plus(before.verdicts, {row.verdict: row.records for row in rows}),
        violations=_plus(
            before.violations, {row.verdict: row.records for row in rows if row.is_violation}
        ),
        late_by=_plus(before.late_by, late_by),
        deliveries=before.deliveries + sum(row.records for row in arrived),
        late_sum_ms=before.late_sum_ms + sum(row.late_sum_ms for row in arrived),
        late=before.late + sum(row.late for row in arrived),
    )


def _with_summary(before: Totals, audit: Row) -> Totals:
    told = json.loads(audit.summary)
    lost = before.lost + sum(one["end"] - one["start"] for one in told["unverifiable"])
    if audit.result == PORTION:
        return replace(before, audit=audit.audit, lost=lost)
    return replace(
        before,
        audit=audit.audit,
        lost=lost,
        pending=sum(told["verdicts"].get(name, 0) for name in NOT_DONE),
        overdue=told["overdue"],
        unread=sum(max(0, one["log_end"] - one["next_offset"]) for one in told["ranges"]),
        until_ms=told["audited_until_ms"],
    )


def _plus(before: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + added.get(name, 0) for name in {**before, **added}}


def publish(totals: Totals, settings: KafkaSettings, topic: str) -> None:
    """Write the totals to the topic, as JSON. The last message is right."""
    failed: list[KafkaError | None] = []
    producer = Producer(dict(settings.librdkafka))
    value = json.dumps(asdict(totals))
    producer.produce(topic, value, KEY, on_delivery=lambda error, _message: failed.append(error))
    producer.flush(TIMEOUT_S)
    if failed != [None]:
        why = failed[0].str() if failed and failed[0] else "the broker does not answer"
        raise BrokerUnreachable(
            f"The totals cannot be written to {topic}: {why}.",
            "Grant Write on it, or name no --audit-topic: ''.",
        )


def create_topic(settings: KafkaSettings, topic: str) -> None:
    """Create the topic unless it is there. Raises `TopicMissing` where that is refused."""
    admin = AdminClient(dict(settings.librdkafka))
    wanted = NewTopic(topic, num_partitions=1, config=TOPIC_CONFIG)
    try:
        admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    except KafkaException as failed:
        error = failed.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"The topic {topic} cannot be created: {error.str()}.",
                "Create it (cleanup.policy=compact), or name another --audit-topic, or none: ''.",
            ) from None


class Gauges(Collector):
    """The totals as metrics: none before the first ones."""

    def __init__(self) -> None:
        self.totals: Totals | None = None

    def serve(self, host: str, port: int) -> None:
        """Answer on http://host:port/metrics, in a thread. Raises `AuditError`."""
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
        """The metrics, as Prometheus' library asks for them."""
        if self.totals is not None:
            yield from _families(self.totals)


def _families(totals: Totals) -> Iterator[Metric]:
    yield _counts("verdicts", "Records by verdict.", totals.verdicts, MEANINGS)
    yield _counts("violations", "Violations by verdict.", totals.violations, VIOLATIONS)
    late = HistogramMetricFamily(f"{PREFIX}_lateness_seconds", "How late deliveries were.")
    buckets = [(str(one / 1000), totals.late_by.get(str(one), 0)) for one in BUCKETS_MS]
    late.add_metric([], [*buckets, ("+Inf", totals.deliveries)], totals.late_sum_ms / 1000)
    yield late
    for name, text, value in (
        ("pending", "Records read by the proxy that have not ended.", totals.pending),
        ("unread", "Ingress records the proxy has not read.", totals.unread),
        ("lost_offsets", "Ingress offsets deleted before the audit read them.", totals.lost),
        ("overdue", "Records due for longer than allowed, not ended.", totals.overdue),
        (
            "audited_until_seconds",
            "Epoch seconds up to which all is judged.",
            totals.until_ms / 1000,
        ),
    ):
        yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _counts(name: str, text: str, found: Mapping[str, int], names: Iterable[str]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["verdict"])
    for verdict in names:
        if verdict != PENDING:
            family.add_metric([verdict], found.get(verdict, 0))
    return family
