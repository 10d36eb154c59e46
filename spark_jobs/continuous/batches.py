"""One batch of a continuous audit, from what arrived to what is published.

1. What arrived since is put beside what the batch before left open, and beside the ingress records
   that the proxy had read by the horizon.
2. All that must have ended by the horizon gets its verdict; the rest stays open.
3. Violations, windows and totals are written, then published to the topic and to Prometheus.
4. A new horizon is taken for the next batch. 5. The state is put in its place.

Whatever stops it between two of these, the batch is done again and gives the same.
"""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.continuous.audit_topic import publish
from spark_jobs.continuous.horizon import Horizon, Position, take_horizon
from spark_jobs.continuous.state import State, States, Tally
from spark_jobs.continuous.totals import Totals, with_batch
from spark_jobs.continuous.windows import WINDOWS, changed, merged, windows_of
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.evidence.check_backs import check_backs
from spark_jobs.evidence.circumstances import Circumstances
from spark_jobs.evidence.control_total import ControlTotal
from spark_jobs.evidence.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.inputs import new_requests
from spark_jobs.evidence.partition_state import (
    PartitionState,
    partition_frame,
    span_at,
    up_to_ms,
)
from spark_jobs.evidence.previous_audit import Span
from spark_jobs.evidence.record_histories import record_histories
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.committed import hop_secrets
from spark_jobs.kafka.positions import Range
from spark_jobs.kafka.sources import records
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.requests.policies import least_attempts
from spark_jobs.results.result_tables import look
from spark_jobs.runtime.errors import NotOurs, ResultsRefused, StillOpen
from spark_jobs.runtime.frames import read_table, spark_path
from spark_jobs.runtime.materialised import Materialise, materialising
from spark_jobs.verdicts.carry_over import carried_ends, carried_requests
from spark_jobs.verdicts.evaluation import Evaluation, evaluate

MOST_AHEAD: Final = 1_000_000
"""Offsets of a partition that are read beyond what the proxy has read, for successors in them."""
KEPT_BATCHES: Final = 10_000
"""Whose summaries stay on disk: a week of one a minute."""


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
        self._broker, self._states = Broker(job.kafka), States(spark, job.output)

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
        records_arrived = arrived.filter(f.col("topic").isNotNull()).persist(StorageLevel.DISK_ONLY)
        try:
            with materialising(self._job.output) as materialise:
                after = self._state_after(before, records_arrived, number, materialise)
                self._states.write(number, after)
        finally:
            records_arrived.unpersist()
        self._say(number, after.tally)

    def _state_after(
        self, before: State, arrived: DataFrame, number: int, materialise: Materialise
    ) -> State:
        tally, partitions = before.tally, self._partitions(before.tally)
        control = ControlTotal()
        found = self._evaluated(before, arrived, partitions, control, materialise)
        self.go_on()
        given = found.verdicts.where("timestamp_ms IS NOT NULL")
        control.check(before.requests, given, found.skipped)
        totals = with_batch(tally.totals, found.verdicts)
        self.go_on()
        windows = self._windows(before, found.verdicts, totals, number, materialise)
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
        self._prune(number)
        carried = found.carried
        return State(after, carried_requests(carried), carried_ends(carried), windows)

    def _windows(
        self,
        before: State,
        given: DataFrame,
        totals: Totals,
        number: int,
        materialise: Materialise,
    ) -> DataFrame:
        """The windows that stay open; those that the batch has changed are published."""
        at_ms = before.tally.horizon.at_ms
        found = windows_of(given, self._publication.window_ms, at_ms)
        summaries = self._written("summaries", number, found.coalesce(1))
        added = read_table(self._spark, summaries, WINDOWS)
        older_than_ms = at_ms - self._publication.keep_ms
        windows = materialise(merged(before.windows, added, older_than_ms))
        if topic := self._publication.audit_topic:
            publish(changed(windows, added), totals, self._job.kafka, topic)
        return windows

    def _evaluated(
        self,
        before: State,
        arrived: DataFrame,
        partitions: list[PartitionState],
        control: ControlTotal,
        materialise: Materialise,
    ) -> Evaluation:
        own, horizon = self._job.own, before.tally.horizon
        ranges = [
            Range(own.ingress, one.partition, one.closed_to, one.read_to) for one in partitions
        ]
        held = control.observed(records(self._spark, self._job.kafka, ranges), ranges)
        hop_keys = HopKeys(horizon.topic_id, hop_secrets(self._broker, own.settings))
        requests = new_requests(held, horizon.judging, horizon.policies, hop_keys)
        of_targets = arrived.filter(~f.col("topic").isin(own.dead_letters, own.outcomes))
        ends = all_of(
            deliveries(of_targets, own.ingress),
            dead_letters(arrived.filter(f.col("topic") == own.dead_letters), own.ingress),
            outcomes(arrived.filter(f.col("topic") == own.outcomes), own.ingress),
            before.ends,
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
        histories = record_histories(requests.unionByName(before.requests), ends)
        self.go_on()
        frame = partition_frame(self._spark, partitions)

        def read(topics: list[str]) -> DataFrame:
            return check_backs(of_targets.filter(f.col("topic").isin(topics)))

        return evaluate(histories, frame, circumstances, materialise, read)

    def _partitions(self, tally: Tally) -> list[PartitionState]:
        places = [(self._job.own.ingress, one.partition) for one in tally.horizon.positions]
        ends = self._broker.high_watermarks(places)
        return [
            _state(one, tally.ingress.get(one.partition), ends[place])
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
        self._written("violations", number, broken)

    def _audited(self) -> str:
        return f"{self._job.group} at {self._job.own.ingress}"

    def _written(self, table: str, number: int, found: DataFrame) -> Path:
        """Where the table of what a batch has `found` is now, in place of an earlier one of it."""
        place = self._job.output / table / f"batch={number}"
        found.write.mode("overwrite").parquet(spark_path(place))
        return place

    def _prune(self, number: int) -> None:
        old = self._job.output / "summaries" / f"batch={number - KEPT_BATCHES}"
        shutil.rmtree(old, ignore_errors=True)


def _state(one: Position, before: Span | None, log_end: int) -> PartitionState:
    read_from, closed_to = span_at(one.log_start, before)
    read_to = max(closed_to, min(one.stable_end, one.next_offset + MOST_AHEAD))
    return PartitionState(
        one.partition,
        read_from,
        closed_to,
        closed_to,
        read_to,
        read_to,
        one.settled_end,
        max(log_end, read_to),
        one.next_offset,
        one.watermark_ms,
        one.cursor,
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
