"""The state of each ingress partition in an audit, by the snapshot and by previous audits.

All that is read once is not read again; where retention was faster than the audits, they begin anew
behind the gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.evidence.previous_audit import ReadSoFar, Span
from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.positions import EndRange, IngressPosition, PolicyFrom, Range, Snapshot
from spark_jobs.runtime.errors import BEGIN_ANEW, NotOurs
from spark_jobs.runtime.frames import Schema, local_rows

MOST_AHEAD: Final = 1_000_000
"""Offsets of a partition that an audit of what is settled reads beyond the proxy, for successors in
them."""
WHY_DELETED: Final = "retention has deleted these records from the ingress"


class PartitionState(NamedTuple):
    """An ingress partition, by offsets; what ends there is exclusive.

    [read_from, read_to): what this audit or one that it continues has read. Below closed_to
    previous audits gave the verdicts, but for what they left open. [audited_from, audited_to): what
    gets a verdict. settled_end: below it lies all that was written with the committed position.
    log_end: where the ingress ended after all ends were read. The next three are that position: O,
    T and C of docs/exactly-once.md#what-is-committed; floor is its F. Below known_from it is not
    known what records asked for: they were not read, or the settings are gone that judged them.
    """

    partition: int
    read_from: int
    closed_to: int
    audited_from: int
    audited_to: int
    read_to: int
    settled_end: int
    log_end: int
    next_offset: int
    watermark_ms: int
    cursor: int
    known_from: int
    floor: int

    @property
    def span_after(self) -> Span:
        """What the next audit finds read, understood and done."""
        return Span(self.known_from, max(self.closed_to, self.next_offset))


PARTITION_STATE: Final[Schema] = {
    **dict.fromkeys(PartitionState._fields, "bigint"),
    "partition": "int",
}


class Unverifiable(NamedTuple):
    """Ingress offsets [start, end) of a partition that could not be judged, and why."""

    partition: int
    start: int
    end: int
    why: str


def partition_states(
    taken: Snapshot, before: ReadSoFar, *, settled_only: bool = False
) -> list[PartitionState]:
    """The state of each ingress partition. settled_only: no record gets a verdict that the proxy
    has not read."""
    states = [_state(one, before.ingress.get(one.partition)) for one in taken.ingress]
    if before.judged is not None:
        judged = {
            place[1]: at for place, at in before.judged.items() if place[0] == taken.ingress_topic
        }
        states = [one._replace(audited_from=judged.get(one.partition, 0)) for one in states]
    return [_settled(one) for one in states] if settled_only else states


def _settled(one: PartitionState) -> PartitionState:
    return one._replace(
        audited_to=max(one.closed_to, min(one.audited_to, one.next_offset)),
        read_to=max(one.closed_to, min(one.read_to, one.next_offset + MOST_AHEAD)),
    )


def partition_frame(spark: SparkSession, states: Sequence[PartitionState]) -> DataFrame:
    """PARTITION_STATE of these partitions."""
    return local_rows(spark, [one._asdict() for one in states], PARTITION_STATE)


def unverifiable(taken: Snapshot, before: ReadSoFar) -> list[Unverifiable]:
    """What retention deleted before any audit read it, where the audit is to begin there."""
    unread_from = before.closed(taken.ingress_topic)
    gaps = [
        (one.partition, unread_from.get((taken.ingress_topic, one.partition), 0), one.start)
        for one in taken.ingress
        if one.audited_from <= one.start
    ]
    return [Unverifiable(*gap, WHY_DELETED) for gap in gaps if gap[1] < gap[2]]


def unread(ranges: Sequence[Range], read: Mapping[Place, int]) -> list[Range]:
    """What lies in these ranges and was not read before."""
    return [_from(one, read.get((one.topic, one.partition), 0)) for one in ranges]


def unread_ends(taken: Snapshot, before: ReadSoFar) -> list[EndRange]:
    """The same for ends. What was read before it was deleted is no loss; a topic that was created
    anew is read from its beginning.

    Raises `NotOurs` where a topic ends before what was read of it."""
    return [
        _unread_end(
            one,
            _read_to(one, taken, before),
            before.lost.get((one.range.topic, one.range.partition)),
        )
        for one in taken.ends
    ]


def _read_to(one: EndRange, taken: Snapshot, before: ReadSoFar) -> int | None:
    """Up to where it was read; None: another topic of its name was."""
    topic = one.range.topic
    known = before.topic_ids.get(topic)
    if known is not None and known != taken.topic_ids.get(topic, known):
        return None
    return before.ends.get((topic, one.range.partition), 0)


def read_so_far(
    taken: Snapshot, group: str, states: Sequence[PartitionState], asked_for: Sequence[str]
) -> ReadSoFar:
    """Where an audit that goes on from this one begins. `asked_for`: targets that are not there."""
    return ReadSoFar(
        taken.ingress_topic,
        taken.topic_id,
        group,
        {one.partition: one.span_after for one in states},
        {(one.topic, one.partition): one.end for one in taken.end_ranges},
        taken.topic_ids,
        asked_for,
    )


def lost_of(taken: Snapshot) -> dict[Place, int]:
    """Where records were deleted before an audit read them, and up to when these were written."""
    return {
        (one.range.topic, one.range.partition): (
            one.first_ms if one.has_lost and one.first_ms is not None else taken.taken_at_ms
        )
        for one in taken.ends
        if one.has_lost or one.is_recreated
    }


def check_same(before: ReadSoFar, topic: str, topic_id: str, group: str) -> None:
    """Raises `NotOurs` where an earlier audit was of something else."""
    if (before.ingress_topic, before.topic_id, before.group) != (topic, topic_id, group):
        raise NotOurs(
            f"The earlier audit was of the group {before.group} at {before.ingress_topic} (topic "
            f"id {before.topic_id}), this one is of {group} at {topic} ({topic_id}).",
            BEGIN_ANEW,
        )


class Stands(Protocol):
    """Where the proxy stood in a partition."""

    @property
    def partition(self) -> int: ...
    @property
    def watermark_ms(self) -> int: ...


def up_to_ms(at_ms: int, partitions: Iterable[Stands], behind: set[int]) -> int:
    """Up to when all is judged that an audit at `at_ms` judges: of the partitions `behind`, where
    something is due and has not ended, no further than the proxy stood."""
    stood = (one.watermark_ms for one in partitions if one.partition in behind)
    return max(0, min([at_ms, *stood]))


def span_at(log_start: int, before: Span | None) -> Span:
    """What has been read of a partition without a gap, now that its log starts here."""
    return before if before and log_start <= before.closed_to else Span(log_start, log_start)


def known_from(span: Span, settings_from: int) -> int:
    """From where on it is known what records asked for, of a partition of which `span` was read
    before. settings_from: the first offset of which it is known by which settings it is judged."""
    return span.read_from if settings_from <= span.closed_to else settings_from


def settings_from(policies: Sequence[PolicyFrom]) -> int:
    """The first offset of a partition of which it is known by which settings it is judged."""
    return min((by.first_offset for by in policies), default=0)


def _state(one: IngressPosition, before: Span | None) -> PartitionState:
    span = span_at(one.start, before)
    return PartitionState(
        one.partition,
        *span,
        max(one.audited_from, span.closed_to),
        one.audited_to,
        one.end,
        one.log_end,
        one.log_end,
        one.next_offset,
        one.committed.watermark_ms,
        one.committed.cursor,
        known_from(span, settings_from(one.committed.policies)),
        one.committed.floor,
    )


def _from(one: Range, offset: int) -> Range:
    start = max(one.start, offset)
    return one._replace(start=start, end=max(start, one.end))


def _unread_end(one: EndRange, read_to: int | None, lost_ms: int | None) -> EndRange:
    if read_to is None:
        return replace(one, is_recreated=True)
    if one.range.end < read_to:
        raise NotOurs(
            f"{one.range.topic}, partition {one.range.partition}, ends at {one.range.end}; an "
            f"earlier audit had read it up to {read_to}: it was created anew, or lost records.",
            BEGIN_ANEW,
        )
    has_lost = one.has_lost and one.range.start > read_to
    first_ms = one.first_ms if has_lost else lost_ms
    if first_ms is not None and lost_ms is not None:
        first_ms = max(first_ms, lost_ms)
    has_lost = has_lost or lost_ms is not None
    return replace(one, range=_from(one.range, read_to), has_lost=has_lost, first_ms=first_ms)
