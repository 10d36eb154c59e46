"""Positions when the audit began: ranges to read, and committed offsets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_jobs.kafka.broker import Place
from spark_jobs.records.bounded_json import read_json, whole

VERSIONS: Final = (1, 2, 3, 4)
"""Versions of committed metadata.
2: the watermark was set back. Ends beyond it are not required until it is there again. 3: moves
have missed, or older versions rejected records, as their outcomes say. 4: a purge is active. The
outcomes of its records say so.
"""
LAST_OFFSET: Final = 2**63 - 1
"""The cursor if nothing is left at the watermark."""
OffsetRange = tuple[int, int]
"""Offsets [first, end) of a partition."""


class Range(NamedTuple):
    """Offsets of one partition. `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def count_of(ranges: Iterable[Range]) -> int:
    """Return the number of records, if none was deleted."""
    return sum(max(0, one.end - one.start) for one in ranges)


def first_of(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """Yield the first `most` offsets in the ranges."""
    for one in ranges:
        end = min(one.end, one.start + most)
        if one.start < end:
            yield one._replace(end=end)
            most -= end - one.start


class Unreadable(NamedTuple):
    """Ingress batches that no client can read."""

    skipped: Mapping[int, Sequence[OffsetRange]] = {}
    """Offsets that an operator has skipped, by partition."""
    stuck: Mapping[int, int] = {}
    """The first offset of a batch that nobody has skipped, by partition. Reading ends there."""

    def bases(self, partition: int) -> list[int]:
        stuck = [self.stuck[partition]] if partition in self.stuck else []
        return [base for base, _end in self.skipped.get(partition, ())] + stuck


class PolicyFrom(NamedTuple):
    """A policy's digest, in force from this ingress offset on."""

    first_offset: int
    digest: str


def policies_from(stored: Any) -> tuple[PolicyFrom, ...]:
    """Parse pairs of offset and digest. Raises ValueError or TypeError."""
    return tuple(PolicyFrom(whole(first), str(digest)) for first, digest in stored)


class OverdueText(NamedTuple):
    """Rules for overdue records (JSON) in the settings topic, and their time (epoch ms)."""

    written_ms: int
    rules: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The proxy's committed position in a partition (docs/exactly-once.md#what-is-committed).
    An ingress record at offset x with due d has ended iff x < next_offset and (d, x) <=
    (watermark_ms, cursor). Without a commit next_offset is None, and nothing has ended.
    """

    partition: int
    next_offset: int | None = None
    watermark_ms: int = -1
    cursor: int = LAST_OFFSET
    floor: int = 0
    policies: tuple[PolicyFrom, ...] = ()
    topic_id: str | None = None

    @classmethod
    def from_metadata(cls, partition: int, next_offset: int, metadata: str | None) -> "Committed":
        """Parse the metadata. Raises ValueError if a proxy of this version did not write it."""
        try:
            fields: dict[str, Any] = read_json(metadata, dict)
            if fields["v"] not in VERSIONS:
                raise ValueError(f"version {fields['v']} is not among {VERSIONS}")
            return cls(
                partition,
                next_offset,
                whole(fields["t"]),
                LAST_OFFSET if fields["c"] is None else whole(fields["c"]),
                whole(fields["f"]),
                policies_from(fields["s"]),
                str(fields["i"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__} {error}") from None


@dataclass(frozen=True, slots=True)
class IngressPosition:
    """One ingress partition. The log holds [start, end), [audited_from, audited_to) is audited."""

    committed: Committed
    start: int
    end: int
    audited_from: int
    audited_to: int
    log_end: int
    """The end of the log. It lies beyond `end` while a transaction is open."""

    @property
    def partition(self) -> int:
        return self.committed.partition

    @property
    def next_offset(self) -> int:
        """The first offset that the proxy has not read. Without a commit: the log's start."""
        committed = self.committed.next_offset
        return self.start if committed is None else committed


@dataclass(frozen=True, slots=True)
class EndRange:
    """The range to read in one partition of a target, dead-letter or outcome topic."""

    range: Range
    has_lost: bool
    """Records before it were deleted, and no audit has read them."""
    first_ms: int | None
    """The latest time at which the deleted records were written; None if unknown."""
    is_open: bool = False
    is_compacted: bool = False
    is_recreated: bool = False
    """An earlier audit had read another topic of that name."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ranges with every end that the committed positions imply. No transaction in them is open."""

    ingress_topic: str
    topic_id: str
    ingress: tuple[IngressPosition, ...]
    ends: tuple[EndRange, ...]
    policies: Mapping[str, str]
    """All JSON texts in the settings topic by digest, in the order written."""
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    taken_at_ms: int

    @property
    def ingress_ranges(self) -> list[Range]:
        """All offsets of the ingress, audited or not. Successors may lie anywhere."""
        return [
            Range(self.ingress_topic, one.partition, one.start, one.end) for one in self.ingress
        ]

    @property
    def end_ranges(self) -> list[Range]:
        return [one.range for one in self.ends]
