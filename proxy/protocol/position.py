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

from proxy.protocol.bounded_json import read_object, whole

VERSION: Final = 1
VERSION_SET_BACK: Final = 2
VERSION_MISSED: Final = 3
VERSION_PURGE: Final = 4
"""With `a` in it, or `r`, or `p`; a version that does not know them must not go on."""
LAST_OFFSET: Final = 2**63 - 1
"""Cursor when nothing at the watermark is left over."""
NEVER_MS: Final = 2**62
"""Beyond every time at which anything fires."""
MAX_POLICIES: Final = 24
METADATA_LIMIT_BYTES: Final = 2048
MISSED_MOVES: Final = "shed/"
MISSED_PARTITION: Final = 0
"""What the keys of records about missed moves begin with, and the partition of the settings topic
in which all of them lie, so that they have an order. Once they were about records shed, too."""

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Watermark(NamedTuple):
    """A place in the order in which entries fire: what lies at or below it has ended.

    Compares with the key of an entry, (when it fires, its offset).
    """

    due_ms: int
    offset: int


class SetBack(NamedTuple):
    """The watermark was set back: of the offsets below `below` what fires up to `ended` had ended
    before (docs/exactly-once.md#a-watermark-set-back)."""

    below: int
    ended: Watermark


class PurgeProgress(NamedTuple):
    """Of what the purges below `at` end, all has; of what the one at `at` ends, what fires up to
    `upto` (docs/exactly-once.md#purges)."""

    at: int
    upto: Watermark


class PolicyFrom(NamedTuple):
    """From this ingress offset on, records are read by the policy with this digest."""

    first_offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Position:
    """What has ended: x has iff x < next_offset, and it is a move that missed, or (due, x) <=
    `ended_upto(x)`.

    `missed_at`: the next offset with which the last move missed; None while none from the floor on
    has (docs/exactly-once.md#moved-records). `purge`: None while none is at work.
    """

    next_offset: int
    watermark_ms: int
    cursor: int
    floor: int
    policies: tuple[PolicyFrom, ...]
    topic_id: str
    set_back: SetBack | None = None
    missed_at: int | None = None
    purge: PurgeProgress | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.floor <= self.next_offset, self
        assert self.policies, self

    @property
    def watermark(self) -> Watermark:
        """What fires at or below has ended."""
        return Watermark(self.watermark_ms, self.cursor)

    @property
    def purged_below(self) -> int:
        """All that purges below this offset end has ended, and been told."""
        return self.next_offset if self.purge is None else self.purge.at

    def ended_upto(self, offset: int) -> Watermark:
        """What of this offset has ended: if it fires at or below."""
        if self.set_back is None or offset >= self.set_back.below:
            return self.watermark
        return max(self.watermark, self.set_back.ended)

    def moved_to(
        self,
        watermark: Watermark,
        next_offset: int,
        floor: int,
        missed_at: int | None = None,
        purge: PurgeProgress | None = None,
    ) -> Self:
        """Further on, read by the same policies; once the watermark is there again, having been set
        back says nothing."""
        set_back = self.set_back
        if set_back is not None and watermark >= set_back.ended:
            set_back = None
        due_ms, cursor = watermark
        policies, topic_id = self.policies, self.topic_id
        return type(self)(
            next_offset, due_ms, cursor, floor, policies, topic_id, set_back, missed_at, purge
        )

    def with_watermark_set_back(self) -> Self:
        """Nothing has ended but what has: newcomers are judged as on the first day."""
        assert self.set_back is None, self
        set_back = SetBack(self.next_offset, self.watermark)
        return replace(self, watermark_ms=-1, cursor=LAST_OFFSET, set_back=set_back)

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
        """Compact JSON: v(ersion) t c f, s = policies, i = topic id, a = set back,
        r = missed at, p = how far a purge has come."""
        fields: dict[str, object] = {
            "v": self._version,
            "t": self.watermark_ms,
            "c": _cursor_shown(self.cursor),
            "f": self.floor,
            "s": _pruned(self.policies, self.floor),
            "i": self.topic_id,
        }
        if self.set_back is not None:
            below, ended = self.set_back
            fields["a"] = [below, ended.due_ms, _cursor_shown(ended.offset)]
        if self.missed_at is not None:
            fields["r"] = self.missed_at
        if self.purge is not None:
            at, upto = self.purge
            fields["p"] = [at, upto.due_ms, _cursor_shown(upto.offset)]
        text = _encoded(fields)
        assert len(text) < METADATA_LIMIT_BYTES, text
        return text

    @property
    def _version(self) -> int:
        if self.purge is not None:
            return VERSION_PURGE
        if self.missed_at is not None:
            return VERSION_MISSED
        return VERSION if self.set_back is None else VERSION_SET_BACK

    @classmethod
    def from_metadata(cls, next_offset: int, metadata: str | None) -> Self:
        """Raises MetadataUnreadable with what was found and what to do."""
        try:
            fields = read_object(metadata)
            if fields["v"] not in range(VERSION, VERSION_PURGE + 1):
                raise ValueError(f"version {fields['v']} is not {VERSION}")
            cursor = _cursor_read(fields["c"])
            policies = tuple(PolicyFrom(whole(first), str(digest)) for first, digest in fields["s"])
            floor = whole(fields["f"])
            if not policies or not 0 <= floor <= next_offset:
                raise ValueError("its parts contradict each other")
            topic_id, set_back = str(fields["i"]), None
            if "a" in fields:
                below, due_ms, offset = fields["a"]
                set_back = SetBack(whole(below), Watermark(whole(due_ms), _cursor_read(offset)))
            missed_at, purge = whole(fields["r"]) if "r" in fields else None, None
            if "p" in fields:
                at, due_ms, offset = fields["p"]
                purge = PurgeProgress(whole(at), Watermark(whole(due_ms), _cursor_read(offset)))
            return cls(
                next_offset,
                whole(fields["t"]),
                cursor,
                floor,
                policies,
                topic_id,
                set_back,
                missed_at,
                purge,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataUnreadable(
                f"the committed offset {next_offset} carries metadata that is not ours "
                f"({error}): {str(metadata)[:200]!r}"
            ) from None


class TooManyPolicies(ValueError):
    """More changes of settings than the metadata may carry while old records wait."""


class MetadataUnreadable(ValueError):
    """The committed offset was written by something else, or by a version unknown here."""


def _cursor_shown(cursor: int) -> int | None:
    return None if cursor == LAST_OFFSET else cursor


def _cursor_read(cursor: int | None) -> int:
    return LAST_OFFSET if cursor is None else whole(cursor)


def _pruned(policies: Sequence[PolicyFrom], floor: int) -> list[PolicyFrom]:
    """Without the policies whose last offset lies below the floor: nothing asks for them."""
    following = [*policies[1:], PolicyFrom(floor + 1, "")]
    return [p for p, after in zip(policies, following, strict=True) if after.first_offset > floor]
