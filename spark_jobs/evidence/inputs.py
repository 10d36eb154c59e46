"""What an audit judges by, read in the order that `kafka.snapshot` asks for."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.circumstances import Circumstances, overdue_rules, unseen_of
from spark_jobs.evidence.audit_job import AuditJob, Selection
from spark_jobs.evidence.control_total import ControlTotal
from spark_jobs.evidence.ends import all_of, check_backs, dead_letters, deliveries, outcomes
from spark_jobs.evidence.open_records import (
    WHY_DELETED,
    OpenRecords,
    PartitionState,
    Touched,
    Unverifiable,
    ends_of,
    known_from,
    lost_of,
    partition_frame,
    partition_states,
    requests_of,
    settings_from,
    span_at,
    unread,
    unread_ends,
    unverifiable,
)
from spark_jobs.evidence.previous_audit import KNOWN, REQUESTS, ReadSoFar, Span
from spark_jobs.kafka.broker import Broker, KafkaSettings, Place
from spark_jobs.kafka.positions import Range, Snapshot, count_of, first_of
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, take_snapshot
from spark_jobs.kafka.sources import LargeRecords, records
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, least_attempts, policies
from spark_jobs.runtime.errors import RangeRefused
from spark_jobs.runtime.frames import Materialise, conformed
from spark_jobs.runtime.session import size_shuffles

MOST_TARGETS: Final = 100_000
"""Names of topics that come to the driver; an audit of more is refused."""


@dataclass(frozen=True, slots=True)
class Previous:
    """What an audit goes on from: how far that read, and the records that it left open."""

    read: ReadSoFar
    records: OpenRecords


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of what there is to read. A later audit judges it.

    requests, ends: REQUESTS and ENDS in it. read: how far all was read then. deleted: what was gone
    before it was read. count: of offsets. A portion gives no verdicts: a record is missing only if
    everything was read that may be its end.
    """

    requests: DataFrame
    ends: DataFrame
    read: ReadSoFar
    deleted: list[Unverifiable]
    count: int
    control: ControlTotal


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


class _First(NamedTuple):
    """What is read before anything else: requests in these ranges of the ingress. before: how far
    earlier audits have read. wanted: the targets, whether they exist or not."""

    before: ReadSoFar
    ranges: list[Range]
    requests: DataFrame
    wanted: set[str]


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
        job: AuditJob,
        selection: Selection,
        previous: Previous | None = None,
    ) -> Inputs | Portion:
        """Return all that is needed for an audit, without what `previous` had already.

        Return a portion instead if that is more than `job.most` records. The snapshot is that of an
        audit that is made again, or a new one. Without targets they are the topics that the ingress
        asks for, as far as they exist: then it is read first, and written to an intermediate table.
        """
        before = previous.read if previous else _nothing_read(committed, job)
        there = unread(committed.ranges, before.closed(committed.own.ingress))
        ranges = there if job.most is None else [*first_of(there, job.most)]
        size_shuffles(self._spark, count_of(ranges))
        requests = self._requests(committed, ranges)
        if previous or job.most or not job.targets:
            requests = self._materialise(requests)
        first = _First(before, ranges, requests, self._wanted(job.targets, requests, before))
        if count_of(ranges) < count_of(there):
            return self._of_ingress(committed, first)
        taken = job.again.taken if job.again else self._snapshot(committed, first.wanted, selection)
        taken = replace(taken, ends=tuple(unread_ends(taken, before)))
        if job.most is None or count_of([*ranges, *taken.end_ranges]) <= job.most:
            return self._all(committed, job, selection, previous, taken, first)
        if count_of(ranges):
            return self._of_ingress(committed, first)
        return self._of_ends(committed.own, first, taken, job.most)

    def _all(
        self,
        committed: CommittedState,
        job: AuditJob,
        selection: Selection,
        previous: Previous | None,
        taken: Snapshot,
        first: _First,
    ) -> Inputs:
        """Return all that is left to read."""
        own, before, requests = committed.own, first.before, first.requests
        states = partition_states(taken, before, settled_only=job.settled_only)
        rest = _beyond(first.ranges, own.ingress, states)
        if count_of(rest):
            further = self._requests(committed, rest)
            requests = requests.unionByName(self._materialise(further) if previous else further)
        size_shuffles(self._spark, count_of([*first.ranges, *rest, *taken.end_ranges]))
        ends = self._ends(taken.end_ranges, own)
        circumstances = _circumstances(committed, taken, selection.at_ms, job)
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
        topics = self._broker.topics().keys()
        return Inputs(
            requests,
            ends,
            states,
            unverifiable(taken, before),
            taken,
            circumstances,
            touched,
            partial(self._check_backs, taken, before),
            self._control,
            tuple(sorted(topics - taken.partitions.keys() - {own.settings})),
            tuple(sorted(first.wanted - taken.partitions.keys())),
        )

    def _of_ingress(self, committed: CommittedState, first: _First) -> Portion:
        """Return the requests that are read first, as a portion."""
        before = first.before
        spans, deleted = dict(before.ingress), []
        policies = {one.partition: one.policies for one in committed.committed}
        for topic, number, start, end in first.ranges:
            closed_to = before.closed(topic).get((topic, number), 0)
            if closed_to < start:
                deleted.append(Unverifiable(number, closed_to, start, WHY_DELETED))
            span = span_at(start, spans.get(number))
            spans[number] = Span(known_from(span, settings_from(policies[number])), end)
        asked_for = tuple(sorted(first.wanted))
        read = replace(before, ingress=spans, asked_for=asked_for, judged=before.judged_to)
        ends = self._ends((), committed.own)
        count = count_of(first.ranges)
        return Portion(first.requests, ends, read, deleted, count, self._control)

    def _of_ends(self, own: OwnTopics, first: _First, taken: Snapshot, most: int) -> Portion:
        """Return the first ends, where no requests are left. A topic that was created anew is read
        from its beginning."""
        before = first.before
        part = [*first_of(taken.end_ranges, most)]
        size_shuffles(self._spark, count_of(part))
        anew = {one.range.topic for one in taken.ends if one.is_recreated}
        known = {place: at for place, at in before.ends.items() if place[0] not in anew}
        read = replace(
            before,
            ends={**known, **{(one.topic, one.partition): one.end for one in part}},
            topic_ids={**before.topic_ids, **{o.topic: taken.topic_ids[o.topic] for o in part}},
            lost={**before.lost, **lost_of(taken)},
            judged=before.judged_to,
        )
        ends = self._ends(part, own)
        return Portion(first.requests, ends, read, [], count_of(part), self._control)

    def _wanted(self, targets: Sequence[str], requests: DataFrame, before: ReadSoFar) -> set[str]:
        if targets:
            return set(self._broker.matching(targets))
        return _targets_of(requests) | before.topics

    def _snapshot(
        self, committed: CommittedState, targets: Iterable[str], selection: Selection
    ) -> Snapshot:
        """Take a snapshot with those of these targets that exist."""
        return take_snapshot(
            self._broker,
            committed,
            sorted(self._broker.topics().keys() & set(targets)),
            since_ms=selection.since_ms,
            until_ms=selection.until_ms,
            offsets=selection.offsets,
        )

    def _requests(self, committed: CommittedState, ranges: Sequence[Range]) -> DataFrame:
        held = records(self._spark, self._settings, ranges, committed.unreadable, self._large)
        found = self._control.observed(held, ranges)
        return new_requests(found, in_force(committed), committed.policies, committed.hop_keys)

    def _check_backs(self, taken: Snapshot, before: ReadSoFar, topics: Sequence[str]) -> DataFrame:
        """Return CHECK_BACKS in those of these topics that the snapshot has, also in portions."""
        ranges = [one for one in taken.end_ranges if one.topic in topics]
        if before.judged is not None:
            starts = self._broker.log_starts([(one.topic, one.partition) for one in ranges])
            ranges = [_judged_from(one, before.judged, starts) for one in ranges]
        return check_backs(records(self._spark, self._settings, ranges, large=self._large))

    def _ends(self, ranges: Sequence[Range], own: OwnTopics) -> DataFrame:
        """Return ENDS in these ranges of targets, dead letters and outcomes."""

        def held(*topics: str) -> DataFrame:
            chosen = [one for one in ranges if one.topic in topics]
            return records(self._spark, self._settings, chosen, large=self._large)

        named = {one.topic for one in ranges} - {own.dead_letters, own.outcomes}
        return all_of(
            deliveries(held(*named), own.ingress),
            dead_letters(held(own.dead_letters), own.ingress),
            outcomes(held(own.outcomes), own.ingress),
        )


def _judged_from(one: Range, judged: Mapping[Place, int], starts: Mapping[Place, int]) -> Range:
    """The range with what was read before it and is not judged, if the log has it."""
    place = one.topic, one.partition
    return one._replace(start=max(starts[place], min(one.start, judged.get(place, 0))))


def _nothing_read(committed: CommittedState, job: AuditJob) -> ReadSoFar:
    return ReadSoFar(committed.own.ingress, committed.topic_id, job.group, {}, {})


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


def _beyond(read: Sequence[Range], ingress: str, states: Sequence[PartitionState]) -> list[Range]:
    """What these partitions of the ingress have to be read beyond the ranges that were."""
    ends = {one.partition: one.end for one in read}
    return [
        Range(ingress, one.partition, max(one.closed_to, ends.get(one.partition, 0)), one.read_to)
        for one in states
    ]


def _circumstances(
    committed: CommittedState, taken: Snapshot, asked_ms: int | None, job: AuditJob
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
        job.limits,
        committed.taken_at_ms,
        taken.taken_at_ms,
        least_attempts(committed.policies),
        job.settled_only,
    )
