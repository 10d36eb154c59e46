"""What an audit judges by, read in the order that `kafka.snapshot` asks for."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.evidence.audit_job import Selection
from spark_jobs.evidence.circumstances import Circumstances
from spark_jobs.evidence.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.partition_state import (
    PartitionState,
    Unverifiable,
    partition_states,
    unread,
    unread_ends,
    unverifiable,
)
from spark_jobs.evidence.previous_audit import KNOWN, NOTHING_READ, REQUESTS, PreviousAudit
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.positions import EndRange, Range, Snapshot
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, take_snapshot
from spark_jobs.kafka.sources import records
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, policies
from spark_jobs.runtime.frames import conformed
from spark_jobs.runtime.materialised import Materialise

MOST_TARGETS: Final = 10_000
"""Names of topics that come to the driver."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Frames (requests: REQUESTS, ends: ENDS) and what is known besides."""

    requests: DataFrame
    ends: DataFrame
    partitions: list[PartitionState]
    unverifiable: list[Unverifiable]
    snapshot: Snapshot
    circumstances: Circumstances


class Reader:
    """Reads topics of one broker, through one session."""

    def __init__(
        self,
        spark: SparkSession,
        settings: KafkaSettings,
        broker: Broker,
        materialise: Materialise,
    ) -> None:
        self._spark, self._settings, self._broker = spark, settings, broker
        self._materialise = materialise

    def inputs(
        self,
        committed: CommittedState,
        targets: Sequence[str],
        selection: Selection,
        previous: PreviousAudit | None = None,
    ) -> Inputs:
        """All that is needed for an audit, as far as `previous` did not have it already.

        Without `targets` they are the topics that the ingress asks for, as far as they exist: then
        it is read first, and written to an intermediate table.
        """
        own, before = committed.own, previous.read if previous else NOTHING_READ
        first = unread(committed.ranges, before.closed(own.ingress))
        requests = self._requests(committed, first)
        if previous:
            requests = requests.unionByName(previous.requests)
        if targets:
            names = self._broker.matching(targets)
        else:
            requests = self._materialise(requests)
            named = _targets_of(requests) | before.topics
            names = sorted(named & self._broker.topics().keys())
        taken = take_snapshot(
            self._broker,
            committed,
            names,
            since_ms=selection.since_ms,
            until_ms=selection.until_ms,
            offsets=selection.offsets,
        )
        taken = replace(taken, ends=tuple(unread_ends(taken.ends, before.ends)))
        rest = _beyond(first, taken.ingress_ranges)
        if any(one.start < one.end for one in rest):
            requests = requests.unionByName(self._requests(committed, rest))
        ends = self._ends(taken, own)
        return Inputs(
            requests,
            all_of(ends, previous.ends) if previous else ends,
            partition_states(taken, before),
            unverifiable(taken, before),
            taken,
            _circumstances(taken, own, _now_ms() if selection.at_ms is None else selection.at_ms),
        )

    def _requests(self, committed: CommittedState, ranges: Sequence[Range]) -> DataFrame:
        found = records(self._spark, self._settings, ranges)
        return new_requests(found, in_force(committed), committed.policies, committed.hop_keys)

    def _ends(self, taken: Snapshot, own: OwnTopics) -> DataFrame:
        def held(*topics: str) -> DataFrame:
            ranges = [one for one in taken.end_ranges if one.topic in topics]
            return records(self._spark, self._settings, ranges)

        named = {one.topic for one in taken.end_ranges} - {own.dead_letters, own.outcomes}
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


def gone_before_ms(ends: Iterable[EndRange], at_ms: int) -> dict[str, int]:
    """By topic that has deleted records unread: the time of the first that is left."""
    found: dict[str, int] = {}
    for one in ends:
        if one.has_lost:
            first_ms = at_ms if one.first_ms is None else one.first_ms
            found[one.range.topic] = max(found.get(one.range.topic, first_ms), first_ms)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _targets_of(requests: DataFrame) -> set[str]:
    named = requests.filter("target IS NOT NULL").select("target").distinct()
    return {row.target for row in named.limit(MOST_TARGETS).collect()}


def _beyond(read: Sequence[Range], all_there_is: Sequence[Range]) -> list[Range]:
    """What lies in the log beyond the ranges that were read."""
    ends = {(one.topic, one.partition): one.end for one in read}
    return [
        one._replace(start=max(one.start, ends.get((one.topic, one.partition), 0)))
        for one in all_there_is
    ]


def _circumstances(taken: Snapshot, own: OwnTopics, at_ms: int) -> Circumstances:
    counts = {topic: count for topic, count in taken.partitions.items() if topic != own.ingress}
    gone_ms = gone_before_ms(taken.ends, at_ms)
    return Circumstances(at_ms, own.outcomes, own.dead_letters, counts, gone_ms)
