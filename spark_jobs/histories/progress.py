"""The audits' progress, and the state of each ingress partition in this audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.positions import EndRange, IngressPosition, PolicyFrom, Range, Snapshot
from spark_jobs.runtime.errors import BEGIN_ANEW, NotOurs
from spark_jobs.runtime.frames import Schema, local_rows

STATE_VERSION: Final = 7
MOST_AHEAD: Final = 1_000_000
"""An audit of settled records looks for successors this many offsets beyond the proxy."""
WHY_DELETED: Final = "retention has deleted these records from the ingress"


class Span(NamedTuple):
    """Offsets of an ingress partition: [read_from, closed_to) is done, except open records."""

    read_from: int
    closed_to: int


class Unverifiable(NamedTuple):
    """Ingress offsets [start, end) of a partition that could not be judged, and the reason."""

    partition: int
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """The progress of the audits of one installation."""

    ingress_topic: str
    topic_id: str
    group: str
    ingress: Mapping[int, Span]
    ends: Mapping[Place, int]
    """The first unread offset of each partition of targets, dead letters and outcomes."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    asked_for: Sequence[str] = ()
    """Targets that did not exist."""
    lost: Mapping[Place, int] = field(default_factory=dict)
    """Latest time (epoch ms) of records that were deleted before a portion read them."""
    judged: Mapping[Place, int] | None = None
    """Where judging continues after portions. None: all is judged."""

    @property
    def judged_to(self) -> Mapping[Place, int]:
        closed = self.closed(self.ingress_topic)
        return {**closed, **self.ends} if self.judged is None else self.judged

    def closed(self, ingress_topic: str) -> dict[Place, int]:
        return {(ingress_topic, number): span.closed_to for number, span in self.ingress.items()}

    @property
    def topics(self) -> set[str]:
        return {*self.asked_for, *(topic for topic, _ in self.ends)}

    def to_json(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "ingress_topic": self.ingress_topic,
            "topic_id": self.topic_id,
            "group": self.group,
            "ingress": [[number, *span] for number, span in self.ingress.items()],
            "ends": _listed(self.ends),
            "topic_ids": dict(self.topic_ids),
            "asked_for": [*self.asked_for],
            "lost": _listed(self.lost),
            "judged": None if self.judged is None else _listed(self.judged),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReadSoFar":
        if stored["version"] != STATE_VERSION:
            raise ValueError(f"version {stored['version']} is not {STATE_VERSION}")
        return cls(
            str(stored["ingress_topic"]),
            str(stored["topic_id"]),
            str(stored["group"]),
            {int(number): Span(int(start), int(end)) for number, start, end in stored["ingress"]},
            _by_place(stored["ends"]),
            dict(stored["topic_ids"]),
            tuple(stored["asked_for"]),
            _by_place(stored.get("lost", ())),
            None if stored.get("judged") is None else _by_place(stored["judged"]),
        )


NOTHING_READ: Final = ReadSoFar("", "", "", {}, {})


def _listed(found: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, number] for place, number in found.items()]


def _by_place(listed: Iterable[Sequence[Any]]) -> dict[Place, int]:
    return {(str(topic), int(partition)): int(number) for topic, partition, number in listed}


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
    states = [_state(one, before.ingress.get(one.partition)) for one in taken.ingress]
    if (judged := before.judged) is not None:
        topic = taken.ingress_topic
        states = [
            one._replace(audited_from=judged.get((topic, one.partition), 0)) for one in states
        ]
    return [_settled(one) for one in states] if settled_only else states


def _state(one: IngressPosition, before: Span | None) -> PartitionState:
    span = span_at(one.start, before)
    return PartitionState(
        one.partition,
        *span,
        max(one.audited_from, span.closed_to),
        one.audited_to,
        one.end,
        one.start,
        one.log_end,
        one.next_offset,
        one.committed.watermark_ms,
        one.committed.cursor,
        known_from(span, settings_from(one.committed.policies)),
        one.committed.floor,
    )


def _settled(one: PartitionState) -> PartitionState:
    return one._replace(
        audited_to=max(one.closed_to, min(one.audited_to, one.next_offset)),
        read_to=max(one.closed_to, min(one.read_to, one.next_offset + MOST_AHEAD)),
    )


def partition_frame(spark: SparkSession, states: Sequence[PartitionState]) -> DataFrame:
    """Return the states as rows of PARTITION_STATE."""
    return local_rows(spark, [one._asdict() for one in states], PARTITION_STATE)


def span_at(log_start: int, before: Span | None) -> Span:
    """Return the span that is read without a gap, now that the log starts here."""
    return before if before and log_start <= before.closed_to else Span(log_start, log_start)


def settings_from(policies: Sequence[PolicyFrom]) -> int:
    """Return the first offset of a partition whose settings are known."""
    return min((by.first_offset for by in policies), default=0)


def known_from(span: Span, settings_from: int) -> int:
    """Return the first offset whose request is known. `span` was read before."""
    return span.read_from if settings_from <= span.closed_to else settings_from


def unverifiable(taken: Snapshot, before: ReadSoFar) -> list[Unverifiable]:
    """Return ranges that retention deleted unread, if the audit begins there."""
    unread_from = before.closed(taken.ingress_topic)
    gaps = [
        (one.partition, unread_from.get((taken.ingress_topic, one.partition), 0), one.start)
        for one in taken.ingress
        if one.audited_from <= one.start
    ]
    return [Unverifiable(*gap, WHY_DELETED) for gap in gaps if gap[1] < gap[2]]


def unread(ranges: Sequence[Range], read: Mapping[Place, int]) -> list[Range]:
    """Return the unread parts of the ranges."""
    return [_from(one, read.get(one.place, 0)) for one in ranges]


def _from(one: Range, offset: int) -> Range:
    start = max(one.start, offset)
    return one._replace(start=start, end=max(start, one.end))


def unread_ends(taken: Snapshot, before: ReadSoFar) -> list[EndRange]:
    """Return the unread part of the topics with ends. Raises `NotOurs` if one became shorter.
    Records that were deleted after an audit read them are no loss. A recreated topic is read from
    its beginning.
    """
    return [_unread_end(one, taken, before) for one in taken.ends]


def _unread_end(one: EndRange, taken: Snapshot, before: ReadSoFar) -> EndRange:
    topic, place = one.range.topic, one.range.place
    topic_id = taken.topic_ids.get(topic)
    if topic_id is not None and before.topic_ids.get(topic, topic_id) != topic_id:
        return replace(one, is_recreated=True)
    read_to = before.ends.get(place, 0)
    if one.range.end < read_to:
        raise NotOurs(
            f"{topic}, partition {one.range.partition}, ends at {one.range.end}; an earlier audit "
            f"had read it up to {read_to}: it was created anew, or lost records.",
            BEGIN_ANEW,
        )
    lost_ms = before.lost.get(place)
    has_lost = one.has_lost and one.range.start > read_to
    first_ms = one.first_ms if has_lost else lost_ms
    if first_ms is not None and lost_ms is not None:
        first_ms = max(first_ms, lost_ms)
    return replace(
        one,
        range=_from(one.range, read_to),
        has_lost=has_lost or lost_ms is not None,
        first_ms=first_ms,
    )


def lost_of(taken: Snapshot) -> dict[Place, int]:
    """Return the latest time (epoch ms) of records that no audit could read, by partition."""
    return {
        one.range.place: (
            one.first_ms if one.has_lost and one.first_ms is not None else taken.taken_at_ms
        )
        for one in taken.ends
        if one.has_lost or one.is_recreated
    }


def read_so_far(
    taken: Snapshot, group: str, states: Sequence[PartitionState], asked_for: Sequence[str]
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


def check_same(before: ReadSoFar, topic: str, topic_id: str, group: str) -> None:
    """Raise `NotOurs` if an earlier audit was of another topic or group."""
    if (before.ingress_topic, before.topic_id, before.group) != (topic, topic_id, group):
        raise NotOurs(
            f"The earlier audit was of the group {before.group} at {before.ingress_topic} (topic "
            f"id {before.topic_id}), this one is of {group} at {topic} ({topic_id}).",
            BEGIN_ANEW,
        )
