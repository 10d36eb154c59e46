"""What an audit looks at, read in the order that `positions` asks for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.broker import Broker
from spark_jobs.ends import all_of, dead_letters, deliveries, outcomes
from spark_jobs.kafka_settings import KafkaSettings
from spark_jobs.policies import InForce, policies
from spark_jobs.positions import Standing, snapshot
from spark_jobs.requests import asked
from spark_jobs.rules import Circumstances
from spark_jobs.schemas import STANDINGS
from spark_jobs.snapshot import Range, Snapshot
from spark_jobs.sources import records

MOST_TARGETS: Final = 10_000
"""Names of topics that come to the driver."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked for: at_ms, the audited instant (None: now), and times of ingress records."""

    at_ms: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Frames (ASKED, ENDS, STANDINGS) and what is known besides."""

    asked: DataFrame
    ends: DataFrame
    standings: DataFrame
    snapshot: Snapshot
    seen: Circumstances


class Reader:
    """Reads topics of one broker, through one session."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings, broker: Broker) -> None:
        self._spark, self._settings, self._broker = spark, settings, broker

    def inputs(self, stands: Standing, targets: Sequence[str], window: Window) -> Inputs:
        """All that is needed for an audit. Without `targets` they are the topics that the ingress
        asks for, as far as they exist: then it is read first, and kept on disk."""
        early = self._asked(stands, stands.ranges)
        if targets:
            names = self._broker.matching(targets)
        else:
            early = early.persist(StorageLevel.DISK_ONLY)
            names = sorted(_asked_targets(early) & self._broker.topics().keys())
        taken = snapshot(
            self._broker, stands, names, since_ms=window.since_ms, until_ms=window.until_ms
        )
        late = self._asked(stands, _beyond(stands.ranges, taken.ingress_ranges))
        at_ms = time.time_ns() // 1_000_000 if window.at_ms is None else window.at_ms
        return Inputs(
            early.unionByName(late),
            self._ends(taken, stands),
            _standings(self._spark, taken),
            taken,
            _circumstances(taken, stands, at_ms),
        )

    def _asked(self, stands: Standing, ranges: Sequence[Range]) -> DataFrame:
        in_force = [
            InForce(one.partition, *policy) for one in stands.committed for policy in one.policies
        ]
        rules = policies(self._spark, stands.policies, in_force)
        return asked(records(self._spark, self._settings, ranges), rules)

    def _ends(self, taken: Snapshot, stands: Standing) -> DataFrame:
        own = stands.own
        special = {own.dead_letters: dead_letters, own.outcomes: outcomes}
        found = []
        for topic, ends_of in special.items():
            ranges = [one for one in taken.end_ranges if one.topic == topic]
            found.append(ends_of(records(self._spark, self._settings, ranges), own.ingress))
        others = [one for one in taken.end_ranges if one.topic not in special]
        arrived = records(self._spark, self._settings, others)
        return all_of(deliveries(arrived, own.ingress), *found)


def _asked_targets(asked: DataFrame) -> set[str]:
    named = asked.filter(f.col("target").isNotNull()).select("target").distinct()
    return {row.target for row in named.limit(MOST_TARGETS).collect()}


def _beyond(read: Sequence[Range], all_there_is: Sequence[Range]) -> list[Range]:
    """What lies in the log beyond the ranges that were read."""
    ends = {(one.topic, one.partition): one.end for one in read}
    return [
        one._replace(start=max(one.start, ends.get((one.topic, one.partition), 0)))
        for one in all_there_is
    ]


def _standings(spark: SparkSession, taken: Snapshot) -> DataFrame:
    rows = [
        (
            one.partition,
            one.start,
            one.audited_from,
            one.audited_to,
            one.next_offset,
            one.committed.watermark_ms,
            one.committed.cursor,
        )
        for one in taken.ingress
    ]
    return spark.createDataFrame(rows, ", ".join(f"`{n}` {kind}" for n, kind in STANDINGS.items()))


def _circumstances(taken: Snapshot, stands: Standing, at_ms: int) -> Circumstances:
    own = stands.own
    gone_before_ms: dict[str, int] = {}
    for one in taken.ends:
        if one.range.start > 0:
            first_ms = at_ms if one.first_ms is None else one.first_ms
            known_ms = gone_before_ms.get(one.range.topic, first_ms)
            gone_before_ms[one.range.topic] = max(known_ms, first_ms)
    counts = {topic: count for topic, count in taken.partitions.items() if topic != own.ingress}
    return Circumstances(at_ms, own.outcomes, own.dead_letters, counts, gone_before_ms)
