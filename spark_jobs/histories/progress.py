"""The audits' progress, and the state of each ingress partition in this audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.snapshot import EndRange, PolicyFrom, Range, Snapshot
from spark_jobs.runtime.errors import BEGIN_ANEW, NotOurs
from spark_jobs.runtime.frames import Schema, local_rows

MOST_AHEAD: Final = 1_000_000
"""An audit of settled records looks for successors this many offsets beyond the proxy."""


class Span(NamedTuple):
    """Offsets of an ingress partition: [read_from, closed_to) is done, except open records."""

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
"""Numbers by topic and partition. In JSON: a list of lists."""


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
    """Targets that did not exist."""
    lost: Numbers = field(default_factory=dict)
    """Latest time (epoch ms) of records that were deleted before a portion read them."""
    judged: Numbers | None = None
    """Where judging continues after portions. None: all is judged."""
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
        """Parse it. Raises ValueError or TypeError."""
        return _ADAPTER.validate_python(stored)


_ADAPTER: Final = TypeAdapter(ReadSoFar)
NOTHING_READ: Final = ReadSoFar("", "", "", {}, {})


class PartitionState(NamedTuple):
    """An ingress partition, by offsets. Ends are exclusive.
    This audit or one before it read [read_from, read_to). Earlier audits judged offsets below
    closed_to, except open records. [audited_from, audited_to) gets verdicts. log_start and log_end
    describe the log after all ends were read. next_offset, watermark_ms, cursor and floor are O, T,
    C and F of docs/exactly-once.md#what-is-committed. Requests below known_from are unknown: they
    were not read, or their settings are gone.
    """

    partition: int
    read_from: int
    closed_to: int
    audited_from: int
    audited_to: int
    read_to: int
    log_start: int
    log_end: int
    next_offset: int
    watermark_ms: int
    cursor: int
    known_from: int
    floor: int

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
    """Return the span that is read without a gap, now that the log starts here."""
    return before if before and log_start <= before.closed_to else Span(log_start, log_start)


def known_from(span: Span, policies: Sequence[PolicyFrom]) -> int:
    """Return the first offset whose request is known. `span` was read before."""
    settings_from = min((by.first_offset for by in policies), default=0)
    return span.read_from if settings_from <= span.closed_to else settings_from


def unverifiable(taken: Snapshot, before: ReadSoFar) -> list[Unverifiable]:
    """Return ranges that retention deleted unread, if the audit begins there."""
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
    """Return the unread part of the topics with ends. Raises `NotOurs` if one became shorter.
    Records that were deleted after an audit read them are no loss. A recreated topic is read from
    its beginning.
    """
    found = []
    for one in taken.ends:
        topic, partition, start, end = one.range
        read_to = before.ends.get(one.range.place, 0)
        topic_id = taken.topic_ids.get(topic)
        if before.topic_ids.get(topic, topic_id) != topic_id:
            found.append(replace(one, is_recreated=True))
            continue
        if end < read_to:
            raise NotOurs(
                f"{topic}, partition {partition}, ends at {end}; an earlier audit had read it up "
                f"to {read_to}: it was created anew, or lost records.",
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
