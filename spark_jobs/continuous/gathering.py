"""Reads in portions what is more than one batch shall read at once.

A portion is parsed and hashed, and kept in two tables until all up to the horizon is read: a record
is called missing only by a batch that has seen all that may be its end. A portion counts once the
state says so; whatever stops it, the same portion is read again and put in its place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.continuous.horizon import Horizon
from spark_jobs.continuous.state import Gathered, Tally
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.evidence.check_backs import check_backs
from spark_jobs.evidence.control_total import ControlTotal
from spark_jobs.evidence.ends import ENDS
from spark_jobs.evidence.inputs import ends_in, new_requests
from spark_jobs.evidence.partition_state import PartitionState, unread
from spark_jobs.evidence.previous_audit import REQUESTS
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.committed import settings_held
from spark_jobs.kafka.positions import Range, count_of
from spark_jobs.kafka.snapshot import unreadable_in
from spark_jobs.kafka.sources import records
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.runtime.frames import Schema
from spark_jobs.tables.tables import Tables

REQUESTS_TABLE: Final = "gathered_requests"
ENDS_TABLE: Final = "gathered_ends"
TABLES: Final = (REQUESTS_TABLE, ENDS_TABLE)
FOLDERS: Final = ("portion",)


class News(NamedTuple):
    """What a batch judges for the first time: REQUESTS and ENDS. gathered: those of the requests
    that were counted when they were gathered."""

    requests: DataFrame
    ends: DataFrame
    gathered: DataFrame


class Gathering:
    """Reads for one continuous audit."""

    def __init__(self, spark: SparkSession, job: AuditJob, broker: Broker, tables: Tables) -> None:
        self._spark, self._job, self._broker, self._tables = spark, job, broker, tables

    def gather(self, tally: Tally, portion: Sequence[Range]) -> Tally:
        """Read these ranges and keep what they hold: the tally that says so.

        Raises the errors of `spark_jobs.runtime.errors`.
        """
        before, control = tally.gathered, ControlTotal()
        requests, ends = self._read(tally.horizon, portion, control)
        self._keep(REQUESTS_TABLE, requests, before.portions)
        self._keep(ENDS_TABLE, ends, before.portions)
        kept = self._tables.read(REQUESTS_TABLE, {**REQUESTS, "portion": "int"})
        control.check(None, {}, kept.filter(f"portion = {before.portions}"))
        read_to = {(one.topic, one.partition): one.end for one in portion}
        gathered = Gathered(
            before.portions + 1, before.offsets + count_of(portion), {**before.read_to, **read_to}
        )
        return replace(tally, gathered=gathered)

    def news(self, tally: Tally, rest: Sequence[Range], control: ControlTotal) -> News:
        """What was gathered, and what these ranges hold."""
        requests, ends = self._read(tally.horizon, rest, control)
        gathered = self._kept(REQUESTS_TABLE, REQUESTS, tally.gathered)
        return News(
            requests.unionByName(gathered),
            ends.unionByName(self._kept(ENDS_TABLE, ENDS, tally.gathered)),
            gathered,
        )

    def check_backs(self, tally: Tally, topics: Sequence[str]) -> DataFrame:
        """CHECK_BACKS in what a batch judges of these topics."""
        ranges = [one for one in unread(tally.horizon.ends, tally.ends) if one.topic in topics]
        return check_backs(records(self._spark, self._job.kafka, ranges))

    def forget(self) -> None:
        """Remove what no state speaks of any more."""
        for name in TABLES:
            if self._tables.has(name):
                self._tables.delete(name, "true")

    def _read(
        self, horizon: Horizon, ranges: Sequence[Range], control: ControlTotal
    ) -> tuple[DataFrame, DataFrame]:
        own = self._job.own
        of_ingress = [one for one in ranges if one.topic == own.ingress]
        others = [one for one in ranges if one.topic != own.ingress]
        settings = settings_held(self._broker, own.settings)
        skipped = settings.skipped_of(self._job.group, horizon.topic_id)
        ends = self._broker.high_watermarks([(one.topic, one.partition) for one in of_ingress])
        unreadable = unreadable_in(self._broker, skipped, of_ingress, ends)
        found = records(self._spark, self._job.kafka, of_ingress, unreadable)
        held = control.observed(found, of_ingress)
        hop_keys = HopKeys(horizon.topic_id, settings.hop_secrets)
        requests = new_requests(held, horizon.judging, horizon.policies, hop_keys)
        return requests, ends_in(self._spark, self._job.kafka, others, own)

    def _keep(self, table: str, rows: DataFrame, portion: int) -> None:
        kept = rows.withColumn("portion", f.lit(portion))
        self._tables.replace(table, kept, FOLDERS, where=f"portion = {portion}")

    def _kept(self, table: str, schema: Schema, gathered: Gathered) -> DataFrame:
        rows = self._tables.read(table, {**schema, "portion": "int"})
        return rows.filter(f"portion < {gathered.portions}").select(*schema)


def left_to_read(ingress: str, tally: Tally, partitions: Iterable[PartitionState]) -> list[Range]:
    """What lies up to the horizon and was not read yet: of the ingress first, which may delete it
    before the others do."""
    of_ingress = [Range(ingress, one.partition, one.closed_to, one.read_to) for one in partitions]
    return unread(
        [*of_ingress, *unread(tally.horizon.ends, tally.ends)],
        tally.gathered.read_to,
    )


def first_of(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """The first `most` offsets of these ranges."""
    for one in ranges:
        end = min(one.end, one.start + most)
        if one.start < end:
            yield one._replace(end=end)
            most -= end - one.start
