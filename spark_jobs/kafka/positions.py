"""Where everything stood when the audit began: what to read, and what the proxy says has ended."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_jobs.records.bounded_json import read_json, whole

VERSIONS: Final = (1, 2, 3, 4)
"""2: the watermark was set back; what had ended beyond it before is not asked for until it is there
again. 3: moves have missed, or records were shed, which their outcomes say. 4: a purge is at work;
which records it has ended, their outcomes say."""
LAST_OFFSET: Final = 2**63 - 1
"""Cursor when nothing at the watermark is left over."""


class Range(NamedTuple):
    """Offsets of one partition; `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int


def count_of(ranges: Iterable[Range]) -> int:
    """How many records they hold, if none is gone."""
    return sum(max(0, one.end - one.start) for one in ranges)


def first_of(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """Yield the first `most` offsets of these ranges."""
    for one in ranges:
        end = min(one.end, one.start + most)
        if one.start < end:
            yield one._replace(end=end)
            most -= end - one.start


OffsetRange = tuple[int, int]
"""Offsets of a partition: the first, and the one behind the last."""


class Unreadable(NamedTuple):
    """What no client can read of the ingress. skipped: by partition, the offsets that an operator
    has skipped. stuck: by partition, the first offset of a batch that nobody has skipped: no
    further is read."""

    skipped: Mapping[int, Sequence[OffsetRange]] = {}
    stuck: Mapping[int, int] = {}

    def bases(self, partition: int) -> list[int]:
        """Where the batches of this partition begin."""
        stuck = [self.stuck[partition]] if partition in self.stuck else []
        return [base for base, _end in self.skipped.get(partition, ())] + stuck


class PolicyFrom(NamedTuple):
    """The policy with this digest is in force from this ingress offset on."""

    first_offset: int
    digest: str


def policies_from(told: Any) -> tuple[PolicyFrom, ...]:
    """Read pairs of an offset and a digest. Raises ValueError or TypeError where they are none."""
    return tuple(PolicyFrom(whole(first), str(digest)) for first, digest in told)


class OverdueText(NamedTuple):
    """Rules for the overdue (JSON) as the settings topic has them, and since when (epoch ms)."""

    written_ms: int
    rules: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What the proxy has committed of a partition (docs/exactly-once.md#what-is-committed).

    An ingress record at offset x with due d has ended iff x < next_offset and
    (d, x) <= (watermark_ms, cursor). Without any commit next_offset is None and nothing has ended.
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
        """Raises ValueError with what is wrong when a proxy of this version did not write it."""
        try:
            fields: dict[str, Any] = read_json(metadata, dict)
            if fields["v"] not in VERSIONS:
                raise ValueError(f"version {fields['v']} is not among {VERSIONS}")
            cursor = LAST_OFFSET if fields["c"] is None else whole(fields["c"])
            policies = policies_from(fields["s"])
            floor, watermark_ms = whole(fields["f"]), whole(fields["t"])
            return cls(
                partition, next_offset, watermark_ms, cursor, floor, policies, str(fields["i"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__} {error}") from None


@dataclass(frozen=True, slots=True)
class IngressPosition:
    """One ingress partition: what its log holds, what is committed, and what is audited of it.

    The log holds [start, end), the audit looks at [audited_from, audited_to) within it. `start`
    beyond 0: earlier records have aged out. log_end: where the log ended; beyond `end` where a
    transaction is under way.
    """

    committed: Committed
    start: int
    end: int
    audited_from: int
    audited_to: int
    log_end: int

    @property
    def partition(self) -> int:
        """Its number."""
        return self.committed.partition

    @property
    def next_offset(self) -> int:
        """Offset of the first record that the proxy has not read; the log's start before any."""
        committed = self.committed.next_offset
        return self.start if committed is None else committed


@dataclass(frozen=True, slots=True)
class EndRange:
    """What is to be read of one partition of a target, dead-letter or outcome topic: [start, end).

    has_lost: records before it were deleted, and nobody has read them. first_ms: when at
    the latest those had been written, by the first that is left and the broker's own time; None if
    there are none, or it cannot be known. is_open: a transaction is under way from its end on.
    is_compacted: its topic keeps the last record of each key. is_recreated: an earlier audit had
    read another topic of that name.
    """

    range: Range
    has_lost: bool
    first_ms: int | None
    is_open: bool = False
    is_compacted: bool = False
    is_recreated: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the committed positions call ended lies within these ranges, committed.

    policies: JSON by digest, all that the settings topic holds, in the order written.
    partitions: how many each topic has, ingress included. topic_ids: of the topics where records
    end.
    """

    ingress_topic: str
    topic_id: str
    ingress: tuple[IngressPosition, ...]
    ends: tuple[EndRange, ...]
    policies: Mapping[str, str]
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    taken_at_ms: int

    @property
    def ingress_ranges(self) -> list[Range]:
        """All that the ingress holds, audited or not: what was rolled may go on anywhere."""
        return [
            Range(self.ingress_topic, one.partition, one.start, one.end) for one in self.ingress
        ]

    @property
    def end_ranges(self) -> list[Range]:
        """All that targets, dead letters and outcomes hold."""
        return [one.range for one in self.ends]
