"""A shard's committed position and watermark, and their form in the group's offset metadata
(docs/exactly-once.md#what-is-committed).

The consumer group's committed offset is the only truth: the offset itself is O, the metadata
holds the rest as compact JSON. Kafka refuses metadata over 4,096 bytes and aborts the
transaction, so its parts are bounded here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

VERSION: Final = 1
LAST_OFFSET: Final = 2**63 - 1
"""Cursor when nothing at the watermark is left over."""
MAX_POLICIES: Final = 24
METADATA_LIMIT_BYTES: Final = 2048


class Watermark(NamedTuple):
    """A place in the order in which entries fire: what lies at or below it has ended.

    Compares with the key of an entry, (when it fires, its offset).
    """

    due_ms: int
    offset: int


class PolicyFrom(NamedTuple):
    """From this ingress offset on, records are read by the policy with this digest."""

    first_offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Position:
    """What has ended: x has iff x < next_offset and (due, x) <= (watermark_ms, cursor)."""

    next_offset: int
    watermark_ms: int
    cursor: int
    floor: int
    policies: tuple[PolicyFrom, ...]
    topic_id: str

    def __post_init__(self) -> None:
        assert 0 <= self.floor <= self.next_offset, self
        assert self.policies, self

    @property
    def watermark(self) -> Watermark:
        """What fires at or below has ended."""
        return Watermark(self.watermark_ms, self.cursor)

    @classmethod
    def start(cls, offset: int, digest: str, topic_id: str) -> Self:
        """Before the first record: nothing has ended, whatever its due."""
        return cls(offset, -1, LAST_OFFSET, offset, (PolicyFrom(offset, digest),), topic_id)

    def in_force(self) -> str:
        """Digest of the policy that reads the next record."""
        return [p.digest for p in self.policies if p.first_offset <= self.next_offset][-1]

    def under(self, digest: str, first_offset: int) -> Self:
        """The same position, records from this offset on, at or beyond the next, read by another
        policy."""
        if self.policies[-1].digest == digest:
            return self
        kept = [p for p in self.policies if p.first_offset < first_offset]
        if len(kept) >= MAX_POLICIES:
            raise TooManyPolicies(
                f"the settings that records are read by changed {len(kept)} times while "
                f"records from offset {self.floor} on still wait; go back to the settings with "
                f"digest {kept[-1].digest} until they have been delivered"
            )
        return replace(self, policies=(*kept, PolicyFrom(first_offset, digest)))

    def to_metadata(self) -> str:
        """Compact JSON: v(ersion) t c f, s = policies, i = topic id."""
        text = json.dumps(
            {
                "v": VERSION,
                "t": self.watermark_ms,
                "c": None if self.cursor == LAST_OFFSET else self.cursor,
                "f": self.floor,
                "s": _pruned(self.policies, self.floor),
                "i": self.topic_id,
            },
            separators=(",", ":"),
        )
        assert len(text) < METADATA_LIMIT_BYTES, text
        return text

    @classmethod
    def from_metadata(cls, next_offset: int, metadata: str | None) -> Self:
        """Raises MetadataUnreadable with what was found and what to do."""
        try:
            fields = json.loads(metadata or "")
            if fields["v"] != VERSION:
                raise ValueError(f"version {fields['v']} is not {VERSION}")
            cursor = LAST_OFFSET if fields["c"] is None else int(fields["c"])
            policies = tuple(PolicyFrom(int(first), str(digest)) for first, digest in fields["s"])
            floor = int(fields["f"])
            if not policies or not 0 <= floor <= next_offset:
                raise ValueError("its parts contradict each other")
            return cls(next_offset, int(fields["t"]), cursor, floor, policies, str(fields["i"]))
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataUnreadable(
                f"the committed offset {next_offset} carries metadata that is not ours "
                f"({error}): {str(metadata)[:200]!r}"
            ) from None


class TooManyPolicies(ValueError):
    """More changes of settings than the metadata may carry while old records wait."""


class MetadataUnreadable(ValueError):
    """The committed offset was written by something else, or by a version unknown here."""


def _pruned(policies: Sequence[PolicyFrom], floor: int) -> list[PolicyFrom]:
    """Without the policies whose last offset lies below the floor: nothing asks for them."""
    following = [*policies[1:], PolicyFrom(floor + 1, "")]
    return [p for p, after in zip(policies, following, strict=True) if after.first_offset > floor]
