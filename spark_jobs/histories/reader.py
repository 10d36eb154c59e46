"""The audits' progress, and the reader of all inputs of an audit.
The reader reads the topics in the order that `kafka.snapshot` explains. If very many records are
unread, it reads only a *portion*, which a later audit judges.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from spark_jobs.audit_scope import AuditScope, overdue_rules, unseen_of
from spark_jobs.histories.ends import (
    KNOWN,
    REQUESTS,
    all_of,
    check_backs,
    dead_letters,
    deliveries,
    outcomes,
)
from spark_jobs.histories.job import AuditJob
from spark_jobs.histories.open_records import OpenRecords, Touched, ends_of, requests_of
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.snapshot import (
    CommittedState,
    EndRange,
    PolicyFrom,
    Range,
    Selection,
    Snapshot,
    count_of,
    first_of,
    now_ms,
    take_snapshot,
)
from spark_jobs.kafka.sources import LargeRecords, records
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.parsing import parsed
from spark_jobs.requests.policies import InForce, least_attempts, policies
from spark_jobs.runtime.errors import BEGIN_ANEW, NotOurs, RangeRefused, ResultsRefused
from spark_jobs.runtime.frames import Materialise, Schema, conformed, local_rows
from spark_jobs.runtime.session import size_shuffles

# The audits' progress, and the state of each ingress partition in this audit.

MOST_AHEAD: Final = 1_000_000
"""With `settled_only`, the audit reads this far beyond the proxy's position to find successors."""


class Span(NamedTuple):
    """Offsets [read_from, closed_to) of an ingress partition, judged except for open records."""

    read_from: int
    closed_to: int


class Unverifiable(NamedTuple):
    """Ingress offsets [start, end) of a partition that could not be judged, and the reason."""

    partition: int
    start: int
    end: int
    why: str = "retention has deleted these records from the ingress"


def _by_place(listed: Iterable[tuple[str, int, int]]) -> dict[Place, int]:
    return {(topic, partition): number for topic, partition, number in listed}


def _listed(found: Mapping[Place, int]) -> list[tuple[str, int, int]]:
    return [(*place, number) for place, number in found.items()]


Numbers = Annotated[Mapping[Place, int], BeforeValidator(_by_place), PlainSerializer(_listed)]
"""Numbers by topic and partition. JSON has them as a list of lists."""


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """The progress of the audits of one installation."""

    ingress_topic: str
    topic_id: str
    group: str
    ingress: Mapping[int, Span]
    ends: Numbers
    """The first unread offset of each partition of targets, dead letters and outcomes."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    asked_for: tuple[str, ...] = ()
    """Targets that ingress records named, and that did not exist."""
    lost: Numbers = field(default_factory=dict)
    """Latest time (epoch ms) of records that were deleted unread, by topic and partition."""
    judged: Numbers | None = None
    """By partition, the first offset that was read in a portion and is not judged yet.
    None if no portion waits for its verdicts.
    """
    version: Literal[8] = 8

    @property
    def judged_to(self) -> Mapping[Place, int]:
        return {**self.closed, **self.ends} if self.judged is None else self.judged

    @property
    def closed(self) -> dict[Place, int]:
        return {(self.ingress_topic, number): one.closed_to for number, one in self.ingress.items()}

    @property
    def topics(self) -> set[str]:
        return {*self.asked_for, *(topic for topic, _ in self.ends)}

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return found

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReadSoFar":
        """Parse the stored progress. Raises ValueError or TypeError."""
        return _ADAPTER.validate_python(stored)


_ADAPTER: Final = TypeAdapter(ReadSoFar)
NOTHING_READ: Final = ReadSoFar("", "", "", {}, {})


class PartitionState(NamedTuple):
    """An ingress partition, by offsets. Ends are exclusive.
    O, T, C and F: docs/exactly-once.md#what-is-committed.
    """

    partition: int
    read_from: int
    """This audit and its predecessors read [read_from, read_to)."""
    closed_to: int
    """Earlier audits judged the records below this offset, except open records."""
    audited_from: int
    """[audited_from, audited_to) gets verdicts."""
    audited_to: int
    read_to: int
    log_start: int
    """The start of the log after all ends were read."""
    log_end: int
    """The end of the log after all ends were read."""
    next_offset: int
    """The committed offset O."""
    watermark_ms: int
    """The time T of the watermark."""
    cursor: int
    """The offset C of the watermark."""
    known_from: int
    """Requests below this offset are unknown: they were not read, or their settings are deleted."""
    floor: int
    """The floor F."""

    @property
    def span_after(self) -> Span:
        return Span(self.known_from, max(self.closed_to, self.next_offset))


PARTITION_STATE: Final[Schema] = {
    **dict.fromkeys(PartitionState._fields, "bigint"),
    "partition": "int",
}


def partition_states(
    taken: Snapshot, before: ReadSoFar, *, settled_only: bool = False
) -> list[PartitionState]:
    """Return each partition's state. `settled_only`: judge only records that the proxy read."""
    states = []
    for one in taken.ingress:
        span = span_at(one.start, before.ingress.get(one.partition))
        audited_from, audited_to = max(one.audited_from, span.closed_to), one.audited_to
        if before.judged is not None:
            audited_from = before.judged.get((taken.ingress_topic, one.partition), 0)
        read_to = one.end
        if settled_only:
            audited_to = max(span.closed_to, min(audited_to, one.next_offset))
            read_to = max(span.closed_to, min(read_to, one.next_offset + MOST_AHEAD))
        state = PartitionState(
            one.partition,
            *span,
            audited_from,
            audited_to,
            read_to,
            one.start,
            one.log_end,
            one.next_offset,
            one.committed.watermark_ms,
            one.committed.cursor,
            known_from(span, one.committed.policies),
            one.committed.floor,
        )
        states.append(state)
    return states


def partition_frame(spark: SparkSession, states: Sequence[PartitionState]) -> DataFrame:
    """Return the states as rows of PARTITION_STATE."""
    return local_rows(spark, [one._asdict() for one in states], PARTITION_STATE)


def span_at(log_start: int, before: Span | None) -> Span:
    """Return the offsets that audits have read without a gap.
    If retention has deleted unread records (`log_start` is beyond the span), a new span begins.
    """
    return before if before and log_start <= before.closed_to else Span(log_start, log_start)


def known_from(span: Span, policies: Sequence[PolicyFrom]) -> int:
    """Return the first offset with a known request. `span`: the offsets that were read before."""
    settings_from = min((by.first_offset for by in policies), default=0)
    return span.read_from if settings_from <= span.closed_to else settings_from


def unverifiable(taken: Snapshot, before: ReadSoFar) -> list[Unverifiable]:
    """Return the ranges that retention deleted before an audit read them."""
    closed = {number: span.closed_to for number, span in before.ingress.items()}
    gaps = [
        (one.partition, closed.get(one.partition, 0), one.start)
        for one in taken.ingress
        if one.audited_from <= one.start
    ]
    return [Unverifiable(*gap) for gap in gaps if gap[1] < gap[2]]


def unread(ranges: Iterable[Range], read: Mapping[Place, int]) -> list[Range]:
    """Return the unread parts of the ranges."""
    starts = ((one, max(one.start, read.get(one.place, 0))) for one in ranges)
    return [one._replace(start=start, end=max(start, one.end)) for one, start in starts]


def unread_ends(taken: Snapshot, before: ReadSoFar) -> list[EndRange]:
    """Return the unread ranges of targets, dead letters and outcomes.
    Raises `NotOurs` if a topic became shorter.
    Records that were deleted after an audit read them are no loss. A recreated topic is read from
    its beginning.
    """
    found = []
    for one in taken.ends:
        topic, partition, start, end = one.range
        read_to = before.ends.get(one.range.place, 0)
        topic_id = taken.topic_ids.get(topic)
        if topic_id is not None and before.topic_ids.get(topic, topic_id) != topic_id:
            found.append(replace(one, is_recreated=True))
            continue
        if end < read_to:
            raise NotOurs(
                f"{topic}, partition {partition}, ends at {end}, but an earlier audit had read "
                f"up to {read_to}. The topic was created anew, or lost records.",
                BEGIN_ANEW,
            )
        lost_ms = before.lost.get(one.range.place)
        has_lost = one.has_lost and start > read_to
        first_ms = one.first_ms if has_lost else lost_ms
        if first_ms is not None and lost_ms is not None:
            first_ms = max(first_ms, lost_ms)
        (left,) = unread([one.range], before.ends)
        was_lost = has_lost or lost_ms is not None
        found.append(replace(one, range=left, has_lost=was_lost, first_ms=first_ms))
    return found


def lost_of(taken: Snapshot) -> dict[Place, int]:
    """Return the latest time (epoch ms) of records that no audit could read, by partition."""
    found = {}
    for one in taken.ends:
        if one.has_lost and one.first_ms is not None:
            found[one.range.place] = one.first_ms
        elif one.has_lost or one.is_recreated:
            found[one.range.place] = taken.taken_at_ms
    return found


def read_so_far(
    taken: Snapshot, group: str, states: Sequence[PartitionState], asked_for: tuple[str, ...]
) -> ReadSoFar:
    """Return the progress for the next audit. `asked_for`: targets that do not exist."""
    return ReadSoFar(
        taken.ingress_topic,
        taken.topic_id,
        group,
        {one.partition: one.span_after for one in states},
        {one.place: one.end for one in taken.end_ranges},
        taken.topic_ids,
        asked_for,
    )


# The inputs of an audit.

MOST_TARGETS: Final = 100_000
MOST_COUNTS: Final = 256
"""Control totals are counted by the partition number modulo this number, so that they are few."""


class PartitionTotal(NamedTuple):
    """The records of an ingress partition that were read, judged, and skipped."""

    partition: int
    read: int
    verdicts: int
    skipped: int


class ControlTotal:
    """A check of numbers: each ingress record that was read got a verdict, or was skipped.
    Spark counts the records that it reads, and later the verdicts in the written table. If the
    counts differ, rows were lost, for example because workers do not share the output folder.
    """

    def __init__(self) -> None:
        self._seen: list[Observation] = []

    def observed(self, records: DataFrame, ranges: Iterable[Range]) -> DataFrame:
        numbers = {one.partition % MOST_COUNTS for one in ranges if one.start < one.end}
        if not numbers:
            return records
        self._seen.append(Observation())
        counts = [
            f.expr(f"count_if(partition % {MOST_COUNTS} = {number}) AS `{number}`")
            for number in sorted(numbers)
        ]
        return records.observe(self._seen[-1], *counts)

    def check(
        self, carried: DataFrame | None, verdicts: Mapping[int, int], skipped: DataFrame
    ) -> list[PartitionTotal]:
        """Return the totals by partition. Raises `ResultsRefused` if they do not match.
        `carried`: records that an earlier audit had read. `skipped`: records without a verdict.
        """
        read = _by_partition(carried) if carried is not None else Counter()
        given, passed = Counter[int](), _by_partition(skipped)
        for observation in self._seen:
            read.update({int(name): count for name, count in observation.get.items()})
        for partition, count in verdicts.items():
            given[partition % MOST_COUNTS] += count
        found = [
            PartitionTotal(number, read[number], given[number], passed[number])
            for number in sorted({*read, *given, *passed})
        ]
        for one in found:
            if one.read != one.verdicts + one.skipped:
                raise ResultsRefused(
                    f"The control totals do not balance: in ingress partition {one.partition}, "
                    f"{one.read} records were read, {one.verdicts} have a verdict "
                    f"and {one.skipped} were skipped.",
                    "Do all workers share the folder of --output? If they do, run the audit again.",
                )
        return found


def _by_partition(records: DataFrame) -> Counter[int]:
    number = f.expr(f"partition % {MOST_COUNTS}").alias("number")
    return Counter({row.number: row["count"] for row in records.groupBy(number).count().collect()})


@dataclass(frozen=True, slots=True)
class Portion:
    """Records that are read now. A later audit judges them, when it has read all possible ends."""

    requests: DataFrame
    """REQUESTS."""
    ends: DataFrame
    """ENDS."""
    read: ReadSoFar
    deleted: list[Unverifiable]
    count: int
    control: ControlTotal


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of the verdicts."""

    requests: DataFrame
    """REQUESTS, including touched records."""
    ends: DataFrame
    """ENDS, including touched records."""
    partitions: list[PartitionState]
    unverifiable: list[Unverifiable]
    snapshot: Snapshot
    scope: AuditScope
    touched: Touched | None
    """Open records of an earlier audit that are judged again."""
    read_check_backs: Callable[[list[str]], DataFrame]
    control: ControlTotal
    uncovered: tuple[str, ...]
    """Topics in which the audit did not look for ends."""
    asked_for: tuple[str, ...]
    """Targets that do not exist."""

    @property
    def carried(self) -> DataFrame | None:
        return requests_of(self.touched.rows) if self.touched else None


class Reader:
    """The reader of the topics for one audit."""

    def __init__(
        self,
        spark: SparkSession,
        job: AuditJob,
        committed: CommittedState,
        before: ReadSoFar | None,
        materialise: Materialise,
        large: LargeRecords,
    ) -> None:
        self._spark, self._job, self._broker = spark, job, Broker(job.kafka)
        self._committed, self._goes_on, self._large = committed, before is not None, large
        own = committed.own
        self._before = before or ReadSoFar(own.ingress, committed.topic_id, job.group, {}, {})
        self._materialise, self._control = materialise, ControlTotal()

    def inputs(self, selection: Selection, open_records: OpenRecords) -> Inputs | Portion:
        """Return the inputs of the audit, or a portion if more than `job.most` records are unread.
        A repeated audit uses the snapshot of its `repeat.json`. If the job has no targets, the
        ingress is read first, into an intermediate table, because its records name the targets.
        """
        job, before = self._job, self._before
        there = unread(self._committed.ranges, before.closed)
        ranges = there if job.most is None else [*first_of(there, job.most)]
        size_shuffles(self._spark, count_of(ranges))
        requests = self._requests(ranges)
        if self._goes_on or job.most or not job.targets:
            requests = self._materialise(requests)
        if job.targets:
            wanted = set(self._broker.matching(job.targets))
        else:
            wanted = _targets_of(requests) | before.topics
        if count_of(ranges) < count_of(there):
            return self._of_ingress(ranges, requests, wanted)
        if job.again:
            taken = job.again.taken
        else:
            targets = wanted & self._broker.topics().keys()
            taken = take_snapshot(self._broker, self._committed, targets, selection)
        taken = replace(taken, ends=tuple(unread_ends(taken, before)))
        if job.most is None or count_of([*ranges, *taken.end_ranges]) <= job.most:
            return self._all(taken, ranges, requests, selection.at_ms, open_records, wanted)
        if count_of(ranges):
            return self._of_ingress(ranges, requests, wanted)
        return self._of_ends(requests, taken, job.most)

    def _all(
        self,
        taken: Snapshot,
        read: Sequence[Range],
        requests: DataFrame,
        asked_ms: int | None,
        open_records: OpenRecords,
        wanted: set[str],
    ) -> Inputs:
        job, committed = self._job, self._committed
        states = partition_states(taken, self._before, settled_only=job.settled_only)
        ends_read = {one.partition: one.end for one in read}
        rest = [
            Range(job.own.ingress, one.partition, start, one.read_to)
            for one in states
            for start in [max(one.closed_to, ends_read.get(one.partition, 0))]
        ]
        if count_of(rest):
            further = self._requests(rest)
            if self._goes_on:
                further = self._materialise(further)
            requests = requests.unionByName(further)
        size_shuffles(self._spark, count_of([*read, *rest, *taken.end_ranges]))
        ends, touched = self._ends(taken.end_ranges), None
        at_ms = now_ms() if asked_ms is None else asked_ms
        if self._goes_on:
            ends = self._materialise(ends)
            closed = partition_frame(self._spark, states).select("partition", "closed_to")
            touched = open_records.touched(at_ms, (requests, ends), closed, self._materialise)
            requests = requests.unionByName(requests_of(touched.rows))
            ends = all_of(ends, ends_of(touched.rows))
        scope = AuditScope(
            at_ms,
            committed.own,
            taken.partitions,
            unseen_of(taken.ends, taken.taken_at_ms),
            overdue_rules(committed.overdue),
            job.limits,
            committed.taken_at_ms,
            taken.taken_at_ms,
            least_attempts(committed.policies),
            job.settled_only,
        )
        covered = {*taken.partitions, job.own.settings}
        return Inputs(
            requests,
            ends,
            states,
            unverifiable(taken, self._before),
            taken,
            scope,
            touched,
            lambda topics: self._check_backs(taken, topics),
            self._control,
            tuple(sorted(self._broker.topics().keys() - covered)),
            tuple(sorted(wanted - taken.partitions.keys())),
        )

    def _of_ingress(
        self, ranges: Sequence[Range], requests: DataFrame, wanted: set[str]
    ) -> Portion:
        before, deleted = self._before, []
        spans = dict(before.ingress)
        policies = {one.partition: one.policies for one in self._committed.committed}
        for _topic, number, start, end in ranges:
            span = span_at(start, spans.get(number))
            closed_to = spans[number].closed_to if number in spans else 0
            if closed_to < start:
                deleted.append(Unverifiable(number, closed_to, start))
            spans[number] = Span(known_from(span, policies[number]), end)
        asked_for = tuple(sorted(wanted))
        read = replace(before, ingress=spans, asked_for=asked_for, judged=before.judged_to)
        return Portion(requests, self._ends(()), read, deleted, count_of(ranges), self._control)

    def _of_ends(self, requests: DataFrame, taken: Snapshot, most: int) -> Portion:
        """Return the first `most` ends as a portion. A recreated topic is read from its start."""
        before = self._before
        part = [*first_of(taken.end_ranges, most)]
        size_shuffles(self._spark, count_of(part))
        topics = taken.topic_ids.keys() & {one.topic for one in part}
        ids = {topic: taken.topic_ids[topic] for topic in topics}
        anew = {one.range.topic for one in taken.ends if one.is_recreated}
        known = {place: at for place, at in before.ends.items() if place[0] not in anew}
        read = replace(
            before,
            ends={**known, **{one.place: one.end for one in part}},
            topic_ids={**before.topic_ids, **ids},
            lost={**before.lost, **lost_of(taken)},
            judged=before.judged_to,
        )
        return Portion(requests, self._ends(part), read, [], count_of(part), self._control)

    def _requests(self, ranges: Sequence[Range]) -> DataFrame:
        found = self._committed
        held = records(self._spark, self._job.kafka, ranges, found.unreadable, self._large)
        seen = self._control.observed(held, ranges)
        in_force = [
            InForce(one.partition, *policy) for one in found.committed for policy in one.policies
        ]
        return new_requests(seen, in_force, found.policies, found.hop_keys)

    def _check_backs(self, taken: Snapshot, topics: Sequence[str]) -> DataFrame:
        """Return CHECK_BACKS in the topics, beginning with the first that no audit has judged."""
        ranges = [one for one in taken.end_ranges if one.topic in topics]
        if (judged := self._before.judged) is not None:
            starts = self._broker.log_starts([one.place for one in ranges])
            first = {one.place: min(one.start, judged.get(one.place, 0)) for one in ranges}
            ranges = [
                one._replace(start=max(starts[one.place], first[one.place])) for one in ranges
            ]
        return check_backs(records(self._spark, self._job.kafka, ranges, large=self._large))

    def _ends(self, ranges: Sequence[Range]) -> DataFrame:
        own = self._job.own

        def held(*topics: str) -> DataFrame:
            chosen = [one for one in ranges if one.topic in topics]
            return records(self._spark, self._job.kafka, chosen, large=self._large)

        named = {one.topic for one in ranges} - {own.dead_letters, own.outcomes}
        return all_of(
            deliveries(held(*named), own.ingress),
            dead_letters(held(own.dead_letters), own.ingress),
            outcomes(held(own.outcomes), own.ingress),
        )


def new_requests(
    records: DataFrame, in_force: Sequence[InForce], texts: Mapping[str, str], hop_keys: HopKeys
) -> DataFrame:
    """Return REQUESTS of ingress RECORDS that are read for the first time."""
    found = parsed(records, policies(records.sparkSession, texts, in_force, hop_keys))
    return conformed(found, REQUESTS, dict.fromkeys(KNOWN, "NULL"))


def _targets_of(requests: DataFrame) -> set[str]:
    asked = requests.selectExpr("explode(array(target, checks.topic)) AS target")
    named = asked.filter("target IS NOT NULL").distinct()
    found = {row.target for row in named.limit(MOST_TARGETS + 1).collect()}
    if len(found) > MOST_TARGETS:
        raise RangeRefused(
            f"The ingress asks for more than {MOST_TARGETS:,} targets.",
            "Name some of them with --target, or audit a part with --since or --offsets.",
        )
    return found
