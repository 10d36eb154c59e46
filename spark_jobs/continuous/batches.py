"""One batch of a continuous audit, from what arrived to what is published.

1. What arrived up to the horizon, and retention has not deleted since, is put beside what the batch
   before left open, and beside the ingress records that the proxy had read by then. Where that is
   much, it is read in portions.
2. All that must have ended by the horizon gets its verdict; the rest stays open.
3. Violations, windows and totals are written, then published to the topic and to Prometheus.
4. A new horizon is taken for the next batch. 5. The state is put in its place.

Whatever stops it between two of these, the batch is done again and gives the same.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.circumstances.circumstances import Circumstances
from spark_jobs.continuous.audit_topic import publish
from spark_jobs.continuous.deletions import told_by
from spark_jobs.continuous.gathering import TABLES as GATHERED_TABLES
from spark_jobs.continuous.gathering import Gathering, News, first_of, left_to_read
from spark_jobs.continuous.horizon import Horizon, Position, check_still_there, take_horizon
from spark_jobs.continuous.state import TABLE as STATE_TABLE
from spark_jobs.continuous.state import WINDOWS_TABLE, Gathered, State, States, Tally
from spark_jobs.continuous.totals import Totals, with_batch
from spark_jobs.continuous.windows import changed, merged, windows_of
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.evidence.control_total import ControlTotal, by_partition
from spark_jobs.evidence.ends import all_of
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
from spark_jobs.kafka.positions import Range, count_of
from spark_jobs.requests.policies import least_attempts, settings_from
from spark_jobs.results.result_tables import look
from spark_jobs.runtime.errors import ResultsRefused, StillOpen
from spark_jobs.runtime.materialised import Materialise, materialising
from spark_jobs.runtime.session import size_shuffles
from spark_jobs.tables.tables import Tables
from spark_jobs.verdicts.carry_over import open_rows
from spark_jobs.verdicts.evaluation import Evaluation, evaluate

MOST_AHEAD: Final = 1_000_000
"""Offsets of a partition that are read beyond what the proxy has read, for successors in them."""
KEPT_BATCHES: Final = 10_000
"""Whose summaries stay on disk: a week of one a minute."""
OWN_TABLES: Final = ("summaries", "violations", STATE_TABLE, WINDOWS_TABLE, OPEN_TABLE)
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

    max_offsets: are read at once. `go_on` is asked before each step that takes long, and raises
    where the batch shall be left.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: AuditJob,
        publication: Publication,
        max_offsets: int,
        say: Callable[[int, Tally], None],
        go_on: Callable[[], None],
    ) -> None:
        self._spark, self._job, self._publication, self._say = spark, job, publication, say
        self._max_offsets, self.go_on = max_offsets, go_on
        self._broker, self._tables = Broker(job.kafka), Tables(spark, job.output)
        self._states, self._records = States(spark, self._tables), OpenRecords(self._tables)
        self._gathering = Gathering(spark, job, self._broker, self._tables)

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

    def do(self, number: int) -> None:
        """Judge the batch with this number.

        Raises the errors of `spark_jobs.runtime.errors`, and what `go_on` raises.
        """
        self.go_on()
        before = self._states.read(number - 1)
        tally = self._without_deleted(number - 1, before.tally)
        partitions = self._partitions(tally)
        before = replace(before, tally=self._gathered(number - 1, tally, partitions))
        self._records.go_back(before.open_version)
        with materialising(self._spark, self._job.output) as materialise:
            tally, version = self._judged(before, partitions, number, materialise)
            self._states.write(number, tally, version)
        if before.tally.gathered.portions:
            self._gathering.forget()
        self._tidy(number)
        self._say(number, tally)

    def _without_deleted(self, left_by: int, tally: Tally) -> Tally:
        """The tally that a batch left, but for what retention has deleted since."""
        check_still_there(self._broker, self._job.own.ingress, tally.horizon)
        left, gone = told_by(self._broker, self._job.own.ingress, tally)
        for sentence in gone.sentences():
            print(sentence, file=sys.stderr, flush=True)
        if gone.requests or gone.ends:
            self._states.amend(left_by, left)
        return left

    def _gathered(self, left_by: int, tally: Tally, partitions: list[PartitionState]) -> Tally:
        """The tally that a batch left, once no more than `max_offsets` are left to read."""
        while (left := count_of(self._left_to_read(tally, partitions))) > self._max_offsets:
            self.go_on()
            portion = [*first_of(self._left_to_read(tally, partitions), self._max_offsets)]
            size_shuffles(self._spark, count_of(portion))
            tally = self._gathering.gather(tally, portion)
            self._states.amend(left_by, tally)
            left -= count_of(portion)
            print(f"{tally.gathered.offsets:,} records read, {left:,} to read", flush=True)
        return tally

    def _left_to_read(self, tally: Tally, partitions: list[PartitionState]) -> list[Range]:
        return left_to_read(self._job.own.ingress, tally, partitions)

    def _judged(
        self,
        before: State,
        partitions: list[PartitionState],
        number: int,
        materialise: Materialise,
    ) -> tuple[Tally, int]:
        """What the batch leaves, and the version of its open records; its tables are written."""
        tally, control = before.tally, ControlTotal()
        rest = self._left_to_read(tally, partitions)
        size_shuffles(self._spark, count_of(rest) + tally.gathered.offsets)
        news = self._gathering.news(tally, rest, control)
        found, touched = self._evaluated(before, news, partitions, materialise)
        self.go_on()
        given = by_partition(found.verdicts.where("timestamp_ms IS NOT NULL"))
        known = requests_of(touched.rows).unionByName(news.gathered)
        control.check(known, given, found.skipped)
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
            ends={(one.topic, one.partition): one.end for one in tally.horizon.ends},
            gathered=Gathered(),
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
        news: News,
        partitions: list[PartitionState],
        materialise: Materialise,
    ) -> tuple[Evaluation, Touched]:
        horizon = before.tally.horizon
        circumstances = Circumstances(
            horizon.at_ms,
            self._job.own,
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
        requests, ends = materialise(news.requests), materialise(news.ends)
        touched = self._records.touched(
            horizon.at_ms, (requests, ends), frame.select("partition", "closed_to"), materialise
        )
        requests = requests.unionByName(requests_of(touched.rows))
        histories = record_histories(requests, all_of(ends, ends_of(touched.rows)))
        self.go_on()
        read = partial(self._gathering.check_backs, before.tally)
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
        return horizon

    def _horizon(self, before: Horizon | None) -> Horizon:
        job, audit_topic = self._job, self._publication.audit_topic
        return take_horizon(self._broker, job.own, job.group, job.targets, audit_topic, before)

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
            for name in (*OWN_TABLES, *GATHERED_TABLES):
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
