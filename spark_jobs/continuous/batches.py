"""One batch of a continuous audit, from what arrived to what is published.

1. What arrived since is put beside what the batch before left open, and beside the ingress records
   that the proxy had read by the horizon.
2. All that must have ended by the horizon gets its verdict; the rest stays open.
3. Violations, windows and totals are written, then published to the topic and to Prometheus.
4. A new horizon is taken for the next batch. 5. The state is put in its place.

Whatever stops it between two of these, the batch is done again and gives the same.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.circumstances.circumstances import Circumstances
from spark_jobs.continuous.audit_topic import publish
from spark_jobs.continuous.horizon import Horizon, Position, take_horizon
from spark_jobs.continuous.state import TABLE as STATE_TABLE
from spark_jobs.continuous.state import WINDOWS_TABLE, State, States, Tally
from spark_jobs.continuous.totals import Totals, with_batch
from spark_jobs.continuous.windows import changed, merged, windows_of
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.evidence.check_backs import check_backs
from spark_jobs.evidence.control_total import ControlTotal, by_partition
from spark_jobs.evidence.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.inputs import new_requests
from spark_jobs.evidence.open_records import TABLE as OPEN_TABLE
from spark_jobs.evidence.open_records import OpenRecords, Touched, ends_of, requests_of
from spark_jobs.evidence.partition_state import (
    PartitionState,
    known_from,
    partition_frame,
    span_at,
    up_to_ms,
)
from spark_jobs.evidence.previous_audit import Span
from spark_jobs.evidence.record_histories import record_histories
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.committed import hop_secrets
from spark_jobs.kafka.positions import Range, count_of
from spark_jobs.kafka.sources import records
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.requests.policies import least_attempts, settings_from
from spark_jobs.results.result_tables import look
from spark_jobs.runtime.errors import NotOurs, ResultsRefused, StillOpen
from spark_jobs.runtime.materialised import Materialise, materialising
from spark_jobs.runtime.session import size_shuffles
from spark_jobs.tables.tables import Tables
from spark_jobs.verdicts.carry_over import open_rows
from spark_jobs.verdicts.evaluation import Evaluation, evaluate

MOST_AHEAD: Final = 1_000_000
"""Offsets of a partition that are read beyond what the proxy has read, for successors in them."""
KEPT_BATCHES: Final = 10_000
"""Whose summaries stay on disk: a week of one a minute."""
TIDY_EVERY: Final = 100
"""Batches: then small files are put together, and what no batch needs is removed."""


@dataclass(frozen=True, slots=True)
class Publication:
    """audit_topic: None for none. window_ms: length of the windows, which stay open for keep_ms."""

    audit_topic: str | None = "timer.audit"
    window_ms: int = 60_000
    keep_ms: int = 86_400_000


class Batches:
    """Does the batches of one continuous audit, and hands over the tally after each.

    `go_on` is asked before each step that takes long, and raises where the batch shall be left.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: AuditJob,
        publication: Publication,
        say: Callable[[int, Tally], None],
        go_on: Callable[[], None],
    ) -> None:
        self._spark, self._job, self._publication, self._say = spark, job, publication, say
        self.go_on = go_on
        self._broker, self._tables = Broker(job.kafka), Tables(spark, job.output)
        self._states, self._records = States(spark, self._tables), OpenRecords(self._tables)

    def begin(self) -> Tally:
        """Take the first horizon, or see where the audit stands that has begun before.

        Raises the errors of `spark_jobs.runtime.errors`.
        """
        newest, audited = self._states.newest(), self._audited()
        if newest is None:
            tally = Tally(audited, self._horizon(None), {}, Totals())
            self._states.begin(tally)
            return tally
        tally = self._states.tally(newest)
        if tally.audited != audited:
            raise ResultsRefused(
                f"{self._job.output} holds an audit of {tally.audited}, not of {audited}.",
                "Name another --output.",
            )
        return tally

    def do(self, arrived: DataFrame, number: int) -> None:
        """Judge the batch with this number: a frame of RECORDS, of ticks where the topic is null.

        Raises the errors of `spark_jobs.runtime.errors`, and what `go_on` raises.
        """
        self.go_on()
        before = self._states.read(number - 1)
        self._records.go_back(before.open_version)
        records_arrived = arrived.filter(f.col("topic").isNotNull()).persist(StorageLevel.DISK_ONLY)
        try:
            with materialising(self._spark, self._job.output) as materialise:
                tally, version = self._judged(before, records_arrived, number, materialise)
                self._states.write(number, tally, version)
        finally:
            records_arrived.unpersist()
        self._tidy(number)
        self._say(number, tally)

    def _judged(
        self, before: State, arrived: DataFrame, number: int, materialise: Materialise
    ) -> tuple[Tally, int]:
        """What the batch leaves, and the version of its open records; its tables are written."""
        tally, partitions = before.tally, self._partitions(before.tally)
        control = ControlTotal()
        found, touched = self._evaluated(before, arrived, partitions, control, materialise)
        self.go_on()
        given = by_partition(found.verdicts.where("timestamp_ms IS NOT NULL"))
        control.check(requests_of(touched.rows), given, found.skipped)
        totals = with_batch(tally.totals, found.verdicts)
        totals = replace(totals, pending=totals.pending + self._records.waiting_beside(touched))
        self.go_on()
        self._write_windows(before, found.verdicts, totals, number, materialise)
        if totals.violations != tally.totals.violations:
            self._write_violations(found.verdicts, number)
        spans = {one.partition: one.span_after for one in partitions}
        lost = tally.lost + sum(_lost(one, tally.ingress) for one in partitions)
        after = replace(
            tally,
            horizon=self._next_horizon(tally),
            ingress=spans,
            totals=totals,
            lost=lost,
            until_ms=_until_ms(found.verdicts, partitions, tally.horizon.at_ms),
        )
        return after, self._records.put(touched, open_rows(found.carried))

    def _write_windows(
        self,
        before: State,
        given: DataFrame,
        totals: Totals,
        number: int,
        materialise: Materialise,
    ) -> None:
        """The windows that stay open; those that the batch has changed are published."""
        at_ms = before.tally.horizon.at_ms
        added = materialise(windows_of(given, self._publication.window_ms, at_ms))
        self._write("summaries", number, added)
        older_than_ms = at_ms - self._publication.keep_ms
        windows = materialise(merged(before.windows, added, older_than_ms))
        self._states.write_windows(windows)
        if topic := self._publication.audit_topic:
            publish(changed(windows, added), totals, self._job.kafka, topic)

    def _evaluated(
        self,
        before: State,
        arrived: DataFrame,
        partitions: list[PartitionState],
        control: ControlTotal,
        materialise: Materialise,
    ) -> tuple[Evaluation, Touched]:
        own, horizon = self._job.own, before.tally.horizon
        ranges = [
            Range(own.ingress, one.partition, one.closed_to, one.read_to) for one in partitions
        ]
        size_shuffles(self._spark, count_of(ranges))
        held = control.observed(records(self._spark, self._job.kafka, ranges), ranges)
        hop_keys = HopKeys(horizon.topic_id, hop_secrets(self._broker, own.settings))
        requests = new_requests(held, horizon.judging, horizon.policies, hop_keys)
        of_targets = arrived.filter(~f.col("topic").isin(own.dead_letters, own.outcomes))
        ends = all_of(
            deliveries(of_targets, own.ingress),
            dead_letters(arrived.filter(f.col("topic") == own.dead_letters), own.ingress),
            outcomes(arrived.filter(f.col("topic") == own.outcomes), own.ingress),
        )
        circumstances = Circumstances(
            horizon.at_ms,
            own,
            horizon.partition_counts,
            horizon.unseen,
            horizon.overdue,
            self._job.limits,
            horizon.began_ms,
            None,
            least_attempts(horizon.policies),
            settled_only=True,
        )
        frame = partition_frame(self._spark, partitions)
        requests, ends = materialise(requests), materialise(ends)
        touched = self._records.touched(
            horizon.at_ms, (requests, ends), frame.select("partition", "closed_to"), materialise
        )
        requests = requests.unionByName(requests_of(touched.rows))
        histories = record_histories(requests, all_of(ends, ends_of(touched.rows)))
        self.go_on()

        def read(topics: list[str]) -> DataFrame:
            return check_backs(of_targets.filter(f.col("topic").isin(topics)))

        return evaluate(histories, frame, circumstances, materialise, read), touched

    def _partitions(self, tally: Tally) -> list[PartitionState]:
        places = [(self._job.own.ingress, one.partition) for one in tally.horizon.positions]
        ends = self._broker.high_watermarks(places)
        known = settings_from(tally.horizon.judging)
        return [
            _state(one, tally.ingress.get(one.partition), ends[place], known)
            for one, place in zip(tally.horizon.positions, places, strict=True)
        ]

    def _next_horizon(self, tally: Tally) -> Horizon:
        """The old one where a transaction stays open: then nothing later is judged."""
        try:
            horizon = self._horizon(tally.horizon)
        except StillOpen as error:
            print(f"Nothing later is judged meanwhile: {error}", file=sys.stderr, flush=True)
            return tally.horizon
        if horizon.topic_id != tally.horizon.topic_id:
            raise NotOurs(
                f"The topic {self._job.own.ingress} was deleted and created anew.",
                "Begin anew in another --output.",
            )
        return horizon

    def _horizon(self, before: Horizon | None) -> Horizon:
        job = self._job
        return take_horizon(self._broker, job.own, job.group, job.targets, before)

    def _write_violations(self, given: DataFrame, number: int) -> None:
        shown = look(self._job.kafka.bootstrap, self._job.own.ingress)
        broken = given.where("is_violation").withColumn("look", shown)
        self._write("violations", number, broken)

    def _audited(self) -> str:
        return f"{self._job.group} at {self._job.own.ingress}"

    def _write(self, table: str, number: int, found: DataFrame) -> None:
        """Write what a batch has `found`, in place of what it found before if it is done again."""
        rows = found.withColumn("batch", f.lit(number).cast("bigint")).coalesce(1)
        self._tables.replace(table, rows, where=f"batch = {number}")

    def _tidy(self, number: int) -> None:
        if number % TIDY_EVERY == 0 and number:
            self._tables.delete("summaries", f"batch <= {number - KEPT_BATCHES}")
            for name in ("summaries", "violations", STATE_TABLE, WINDOWS_TABLE, OPEN_TABLE):
                if self._tables.has(name):
                    self._tables.tidy(name)


def _state(
    one: Position, before: Span | None, log_end: int, known: Mapping[int, int]
) -> PartitionState:
    span = span_at(one.log_start, before)
    closed_to = span.closed_to
    read_to = max(closed_to, min(one.stable_end, one.next_offset + MOST_AHEAD))
    return PartitionState(
        one.partition,
        *span,
        closed_to,
        read_to,
        read_to,
        one.settled_end,
        max(log_end, read_to),
        one.next_offset,
        one.watermark_ms,
        one.cursor,
        known_from(span, known.get(one.partition, 0)),
        one.floor,
    )


def _until_ms(given: DataFrame, partitions: Sequence[PartitionState], at_ms: int) -> int:
    """Up to when all is judged: where something is due and has not ended, or is not read yet, no
    further than the proxy stood."""
    late = given.where("overdue_ms IS NOT NULL").select("partition").distinct().collect()
    behind = {row.partition for row in late}
    behind |= {one.partition for one in partitions if one.read_to < one.settled_end}
    return up_to_ms(at_ms, partitions, behind)


def _lost(state: PartitionState, read: Mapping[int, Span]) -> int:
    """Offsets that were deleted before they were read."""
    before = read.get(state.partition)
    return state.closed_to - (before.closed_to if before else 0)
