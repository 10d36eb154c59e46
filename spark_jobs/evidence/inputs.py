"""What an audit judges by, read in the order that `kafka.snapshot` asks for."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.circumstances.circumstances import Circumstances
from spark_jobs.circumstances.lateness_limits import LatenessLimits
from spark_jobs.circumstances.overdue_rules import overdue_rules
from spark_jobs.circumstances.unseen import unseen_of
from spark_jobs.evidence.audit_job import Selection
from spark_jobs.evidence.check_backs import check_backs
from spark_jobs.evidence.control_total import ControlTotal
from spark_jobs.evidence.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.open_records import OpenRecords, Touched, ends_of, requests_of
from spark_jobs.evidence.partition_state import (
    PartitionState,
    Unverifiable,
    partition_frame,
    partition_states,
    unread,
    unread_ends,
    unverifiable,
)
from spark_jobs.evidence.previous_audit import KNOWN, NOTHING_READ, REQUESTS, ReadSoFar
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.large_records import LargeRecords
from spark_jobs.kafka.positions import Range, Snapshot, count_of
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, take_snapshot
from spark_jobs.kafka.sources import records
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, least_attempts, policies
from spark_jobs.runtime.errors import RangeRefused
from spark_jobs.runtime.frames import conformed
from spark_jobs.runtime.materialised import Materialise
from spark_jobs.runtime.session import size_shuffles

MOST_TARGETS: Final = 100_000
"""Names of topics that come to the driver; an audit of more is refused."""


@dataclass(frozen=True, slots=True)
class Previous:
    """What an audit goes on from: how far that read, and the records that it left open."""

    read: ReadSoFar
    records: OpenRecords


@dataclass(frozen=True, slots=True)
class Inputs:
    """Frames (requests: REQUESTS, ends: ENDS) and what is known besides.

    touched: what is looked at again of an earlier audit's open records; its requests and ends are
    among the others. read_check_backs: reads those in these topics. control: counts what is read
    of the ingress. uncovered: topics in which nobody looked for ends. asked_for: targets that are
    not there.
    """

    requests: DataFrame
    ends: DataFrame
    partitions: list[PartitionState]
    unverifiable: list[Unverifiable]
    snapshot: Snapshot
    circumstances: Circumstances
    touched: Touched | None
    read_check_backs: Callable[[list[str]], DataFrame]
    control: ControlTotal
    uncovered: tuple[str, ...]
    asked_for: tuple[str, ...]

    @property
    def carried(self) -> DataFrame | None:
        """REQUESTS that an earlier audit had read."""
        return requests_of(self.touched.rows) if self.touched else None


class Reader:
    """Reads topics of one broker, through one session."""

    def __init__(
        self,
        spark: SparkSession,
        settings: KafkaSettings,
        broker: Broker,
        materialise: Materialise,
        large: LargeRecords,
    ) -> None:
        self._spark, self._settings, self._broker = spark, settings, broker
        self._large = large
        self._materialise, self._control = materialise, ControlTotal()

    def inputs(
        self,
        committed: CommittedState,
        targets: Sequence[str],
        selection: Selection,
        limits: LatenessLimits,
        previous: Previous | None = None,
        again: Snapshot | None = None,
    ) -> Inputs:
        """All that is needed for an audit, as far as `previous` did not have it already; by the
        snapshot of an audit that is made again, or a new one.

        Without `targets` they are the topics that the ingress asks for, as far as they exist: then
        it is read first, and written to an intermediate table.
        """
        own, before = committed.own, previous.read if previous else NOTHING_READ
        first = unread(committed.ranges, before.closed(own.ingress))
        size_shuffles(self._spark, count_of(first))
        requests = self._requests(committed, first)
        if previous or not targets:
            requests = self._materialise(requests)
        wanted = set(self._broker.matching(targets)) if targets else _targets_of(requests)
        if not targets:
            wanted |= before.topics
        there = wanted & self._broker.topics().keys()
        taken = again or self._snapshot(committed, there, selection)
        taken = replace(taken, ends=tuple(unread_ends(taken, before)))
        rest = _beyond(first, taken.ingress_ranges)
        if count_of(rest):
            further = self._requests(committed, rest)
            requests = requests.unionByName(self._materialise(further) if previous else further)
        size_shuffles(self._spark, count_of([*first, *rest, *taken.end_ranges]))
        ends = ends_in(self._spark, self._settings, taken.end_ranges, own, self._large)
        states = partition_states(taken, before)
        circumstances = _circumstances(committed, taken, selection.at_ms, limits)
        touched = None
        if previous:
            ends = self._materialise(ends)
            touched = previous.records.touched(
                circumstances.at_ms,
                (requests, ends),
                partition_frame(self._spark, states).select("partition", "closed_to"),
                self._materialise,
            )
            requests = requests.unionByName(requests_of(touched.rows))
            ends = all_of(ends, ends_of(touched.rows))
        return Inputs(
            requests,
            ends,
            states,
            unverifiable(taken, before),
            taken,
            circumstances,
            touched,
            partial(self.check_backs, taken),
            self._control,
            tuple(sorted(self._broker.topics().keys() - taken.partitions.keys() - {own.settings})),
            tuple(sorted(wanted - there)),
        )

    def _snapshot(
        self, committed: CommittedState, targets: Iterable[str], selection: Selection
    ) -> Snapshot:
        return take_snapshot(
            self._broker,
            committed,
            sorted(targets),
            since_ms=selection.since_ms,
            until_ms=selection.until_ms,
            offsets=selection.offsets,
        )

    def _requests(self, committed: CommittedState, ranges: Sequence[Range]) -> DataFrame:
        held = records(self._spark, self._settings, ranges, committed.unreadable, self._large)
        found = self._control.observed(held, ranges)
        return new_requests(found, in_force(committed), committed.policies, committed.hop_keys)

    def check_backs(self, taken: Snapshot, topics: Sequence[str]) -> DataFrame:
        """CHECK_BACKS in those of these topics that the snapshot has."""
        ranges = [one for one in taken.end_ranges if one.topic in topics]
        return check_backs(records(self._spark, self._settings, ranges, large=self._large))


def ends_in(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Sequence[Range],
    own: OwnTopics,
    large: LargeRecords | None = None,
) -> DataFrame:
    """ENDS in these ranges of targets, dead letters and outcomes."""

    def held(*topics: str) -> DataFrame:
        chosen = [one for one in ranges if one.topic in topics]
        return records(spark, settings, chosen, large=large)

    named = {one.topic for one in ranges} - {own.dead_letters, own.outcomes}
    return all_of(
        deliveries(held(*named), own.ingress),
        dead_letters(held(own.dead_letters), own.ingress),
        outcomes(held(own.outcomes), own.ingress),
    )


def in_force(committed: CommittedState) -> list[InForce]:
    """The policies in force, by partition and first offset."""
    return [
        InForce(one.partition, *policy) for one in committed.committed for policy in one.policies
    ]


def new_requests(
    records: DataFrame, ranges: Sequence[InForce], texts: Mapping[str, str], hop_keys: HopKeys
) -> DataFrame:
    """REQUESTS of ingress records (RECORDS) that are read for the first time."""
    found = parsed(records, policies(records.sparkSession, texts, ranges, hop_keys))
    return conformed(found, REQUESTS, dict.fromkeys(KNOWN, "NULL"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _targets_of(requests: DataFrame) -> set[str]:
    asked = requests.selectExpr("explode(array(target, checks.topic)) AS target")
    named = asked.filter("target IS NOT NULL").distinct()
    found = {row.target for row in named.limit(MOST_TARGETS + 1).collect()}
    if len(found) > MOST_TARGETS:
        raise RangeRefused(
            f"The ingress asks for more than {MOST_TARGETS:,} targets.",
            "Name those to be audited with --target; or audit a part, with --since or --offsets.",
        )
    return found


def _beyond(read: Sequence[Range], all_there_is: Sequence[Range]) -> list[Range]:
    """What lies in the log beyond the ranges that were read."""
    ends = {(one.topic, one.partition): one.end for one in read}
    return [
        one._replace(start=max(one.start, ends.get((one.topic, one.partition), 0)))
        for one in all_there_is
    ]


def _circumstances(
    committed: CommittedState, taken: Snapshot, asked_ms: int | None, limits: LatenessLimits
) -> Circumstances:
    at_ms = _now_ms() if asked_ms is None else asked_ms
    unseen = unseen_of(taken.ends, taken.taken_at_ms)
    rules = overdue_rules(committed.overdue)
    return Circumstances(
        at_ms,
        committed.own,
        taken.partitions,
        unseen,
        rules,
        limits,
        committed.taken_at_ms,
        taken.taken_at_ms,
        least_attempts(committed.policies),
    )
