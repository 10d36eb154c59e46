"""What an audit looks at, read in the order that `positions` asks for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.partition_state import (
    Stand,
    Unverifiable,
    stands_of,
    unread,
    unread_ends,
    unverifiable,
)
from spark_jobs.evidence.previous_audit import NOTHING_READ, Earlier
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.positions import EndRange, OffsetRange, Range, Snapshot
from spark_jobs.kafka.snapshot import Standing, snapshot
from spark_jobs.kafka.sources import records
from spark_jobs.requests.parsing import asked
from spark_jobs.requests.policies import InForce, policies
from spark_jobs.runtime.kept import kept
from spark_jobs.runtime.schemas import KNOWN, REQUESTS, conformed
from spark_jobs.verdicts.rules import Circumstances

MOST_TARGETS: Final = 10_000
"""Names of topics that come to the driver."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked for: at_ms, the audited instant (None: now), and times of ingress records, or
    offsets by partition (none: all)."""

    at_ms: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether some records get no verdict."""
        return self.since_ms is not None or self.until_ms is not None or bool(self.offsets)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Frames (REQUESTS, ENDS) and what is known besides."""

    asked: DataFrame
    ends: DataFrame
    stands: list[Stand]
    unverifiable: list[Unverifiable]
    snapshot: Snapshot
    seen: Circumstances


class Reader:
    """Reads topics of one broker, through one session."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings, broker: Broker) -> None:
        self._spark, self._settings, self._broker = spark, settings, broker

    def inputs(
        self,
        stands: Standing,
        targets: Sequence[str],
        window: Window,
        earlier: Earlier | None = None,
    ) -> Inputs:
        """All that is needed for an audit, as far as `earlier` did not have it already.

        Without `targets` they are the topics that the ingress asks for, as far as they exist: then
        it is read first, and kept on disk.
        """
        own, before = stands.own, earlier.read if earlier else NOTHING_READ
        first = unread(stands.ranges, before.closed(own.ingress))
        early = self._asked(stands, first)
        if earlier:
            early = early.unionByName(earlier.requests)
        if targets:
            names = self._broker.matching(targets)
        else:
            early = kept(early)
            named = _asked_targets(early) | before.topics
            names = sorted(named & self._broker.topics().keys())
        taken = snapshot(
            self._broker,
            stands,
            names,
            since_ms=window.since_ms,
            until_ms=window.until_ms,
            offsets=window.offsets,
        )
        taken = replace(taken, ends=tuple(unread_ends(taken.ends, before.ends)))
        late = _beyond(first, taken.ingress_ranges)
        ends = self._ends(taken, stands)
        return Inputs(
            early.unionByName(self._asked(stands, late)) if any(map(_holds, late)) else early,
            all_of(ends, earlier.ends) if earlier else ends,
            stands_of(taken, before),
            unverifiable(taken, before),
            taken,
            _circumstances(taken, stands, _now_ms() if window.at_ms is None else window.at_ms),
        )

    def _asked(self, stands: Standing, ranges: Sequence[Range]) -> DataFrame:
        found = records(self._spark, self._settings, ranges)
        return requests_in(found, in_force(stands), stands.policies)

    def _ends(self, taken: Snapshot, stands: Standing) -> DataFrame:
        own = stands.own

        def held(*topics: str) -> DataFrame:
            ranges = [one for one in taken.end_ranges if one.topic in topics]
            return records(self._spark, self._settings, ranges)

        named = {one.topic for one in taken.end_ranges} - {own.dead_letters, own.outcomes}
        return all_of(
            deliveries(held(*named), own.ingress),
            dead_letters(held(own.dead_letters), own.ingress),
            outcomes(held(own.outcomes), own.ingress),
        )


def in_force(stands: Standing) -> list[InForce]:
    """Which policy judges from where."""
    return [InForce(one.partition, *policy) for one in stands.committed for policy in one.policies]


def requests_in(
    records: DataFrame, judging: Sequence[InForce], texts: Mapping[str, str]
) -> DataFrame:
    """REQUESTS of ingress records (RECORDS) that are read for the first time."""
    found = asked(records, policies(records.sparkSession, texts, judging))
    nothing = {name: f.lit(None).cast(kind) for name, kind in KNOWN.items()}
    return conformed(found.withColumns(nothing), REQUESTS)


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


def _asked_targets(asked: DataFrame) -> set[str]:
    named = asked.filter(f.col("target").isNotNull()).select("target").distinct()
    return {row.target for row in named.limit(MOST_TARGETS).collect()}


def _holds(one: Range) -> bool:
    return one.start < one.end


def _beyond(read: Sequence[Range], all_there_is: Sequence[Range]) -> list[Range]:
    """What lies in the log beyond the ranges that were read."""
    ends = {(one.topic, one.partition): one.end for one in read}
    return [
        one._replace(start=max(one.start, ends.get((one.topic, one.partition), 0)))
        for one in all_there_is
    ]


def _circumstances(taken: Snapshot, stands: Standing, at_ms: int) -> Circumstances:
    own = stands.own
    counts = {topic: count for topic, count in taken.partitions.items() if topic != own.ingress}
    gone_ms = gone_before_ms(taken.ends, at_ms)
    return Circumstances(at_ms, own.outcomes, own.dead_letters, counts, gone_ms)
