"""A shard's committed position, as offset metadata (docs/exactly-once.md#what-is-committed).

Kafka aborts transactions with metadata over 4,096 bytes, so all parts are bounded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from proxy.protocol.bounded_json import read_object, whole

VERSION: Final = 1
VERSIONS: Final = {"a": 2, "r": 3, "p": 4}
"""Field -> first metadata version with this field. A build refuses versions unknown to it."""
LAST_OFFSET: Final = 2**63 - 1
"""Value of `cursor` if all entries that fire at `watermark_ms` have ended."""
NEVER_MS: Final = 2**62
"""Later than any fire time."""
MAX_POLICIES: Final = 24
METADATA_LIMIT_BYTES: Final = 2048
MISSED_MOVES_PREFIX: Final = "shed/"
MISSED_PARTITION: Final = 0
"""Key prefix and partition of the records about missed moves in the settings topic."""

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Watermark(NamedTuple):
    """An entry key. Entries with a key (fires_ms, offset) at or below it have ended."""

    fires_ms: int
    offset: int


class SetBack(NamedTuple):
    """A watermark's reset (docs/exactly-once.md#a-watermark-set-back)."""

    below: int
    """Entries at lower offsets have also ended if they are at or below `old_watermark`."""
    old_watermark: Watermark


class PurgeProgress(NamedTuple):
    """The progress of purges (docs/exactly-once.md#purges)."""

    purge_offset: int
    """Offset of the purge that is being swept. Purges at lower offsets are complete."""
    upto: Watermark
    """The sweep has written the outcomes of entries up to this key."""


class PolicyFrom(NamedTuple):
    """The policy for records from this ingress offset on."""

    first_offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Position:
    """A shard's position. A record at an offset x below `next_offset` has ended if (fires_ms, x) is
    at or below ended_upto(x). Missed moves have ended, too."""

    next_offset: int
    watermark_ms: int
    cursor: int
    floor: int
    policies: tuple[PolicyFrom, ...]
    topic_id: str
    set_back: SetBack | None = None
    missed_upto: int | None = None
    """The `next_offset` that was committed with the newest record of missed moves. None: no move at
    or above the floor has missed (docs/exactly-once.md#moved-records)."""
    purge: PurgeProgress | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.floor <= self.next_offset, self
        assert self.policies, self

    @property
    def watermark(self) -> Watermark:
        return Watermark(self.watermark_ms, self.cursor)

    @property
    def purged_below(self) -> int:
        """Return the offset below which all purges are complete and recorded."""
        return self.next_offset if self.purge is None else self.purge.purge_offset

    def ended_upto(self, offset: int) -> Watermark:
        if self.set_back is None or offset >= self.set_back.below:
            return self.watermark
        return max(self.watermark, self.set_back.old_watermark)

    def advanced(
        self,
        watermark: Watermark,
        next_offset: int,
        floor: int,
        missed_upto: int | None = None,
        purge: PurgeProgress | None = None,
    ) -> Self:
        """Return a later position. `set_back` is dropped once the old watermark is reached."""
        set_back = self.set_back
        if set_back is not None and watermark >= set_back.old_watermark:
            set_back = None
        fires_ms, cursor = watermark
        policies, topic_id = self.policies, self.topic_id
        return type(self)(
            next_offset, fires_ms, cursor, floor, policies, topic_id, set_back, missed_upto, purge
        )

    def with_watermark_set_back(self) -> Self:
        """Reset the watermark to -1. Offsets below `next_offset` keep the old watermark."""
        assert self.set_back is None, self
        set_back = SetBack(self.next_offset, self.watermark)
        return replace(self, watermark_ms=-1, cursor=LAST_OFFSET, set_back=set_back)

    @classmethod
    def start(cls, offset: int, digest: str, topic_id: str) -> Self:
        return cls(offset, -1, LAST_OFFSET, offset, (PolicyFrom(offset, digest),), topic_id)

    def digest_in_force(self) -> str:
        return [p.digest for p in self.policies if p.first_offset <= self.next_offset][-1]

    def with_policy(self, digest: str, first_offset: int) -> Self:
        """Return the position with this policy from an offset on. Raises TooManyPolicies."""
        if self.policies[-1].digest == digest:
            return self
        kept = [p for p in self.policies if p.first_offset < first_offset]
        if len(kept) >= MAX_POLICIES:
            raise TooManyPolicies(
                f"the settings for reading records have changed {len(kept)} times while records "
                f"from offset {self.floor} on are pending. Go back to the settings with digest "
                f"{kept[-1].digest} until these records have been delivered"
            )
        return replace(self, policies=(*kept, PolicyFrom(first_offset, digest)))

    def to_metadata(self) -> str:
        """Return JSON. Keys: `v` version, `t` and `c` watermark, `f` floor, `s` policies, `i` topic
        id, `a` set_back, `r` missed_upto, `p` purge."""
        fields: dict[str, object] = {
            "v": VERSION,
            "t": self.watermark_ms,
            "c": _cursor_shown(self.cursor),
            "f": self.floor,
            "s": _pruned(self.policies, self.floor),
            "i": self.topic_id,
        }
        if self.set_back is not None:
            fields["a"] = _packed(*self.set_back)
        if self.missed_upto is not None:
            fields["r"] = self.missed_upto
        if self.purge is not None:
            fields["p"] = _packed(*self.purge)
        fields["v"] = max((VERSIONS[name] for name in VERSIONS.keys() & fields), default=VERSION)
        text = _encoded(fields)
        assert len(text) < METADATA_LIMIT_BYTES, text
        return text

    @classmethod
    def from_metadata(cls, next_offset: int, metadata: str | None) -> Self:
        """Parse the metadata. Raises MetadataUnreadable."""
        try:
            fields = read_object(metadata)
            if fields["v"] not in {VERSION, *VERSIONS.values()}:
                raise ValueError(f"version {fields['v']} is unknown")
            policies = tuple(PolicyFrom(whole(first), str(digest)) for first, digest in fields["s"])
            floor = whole(fields["f"])
            if not policies or not 0 <= floor <= next_offset:
                raise ValueError("its parts contradict each other")
            return cls(
                next_offset,
                whole(fields["t"]),
                _cursor_read(fields["c"]),
                floor,
                policies,
                str(fields["i"]),
                SetBack(*_unpacked(fields["a"])) if "a" in fields else None,
                whole(fields["r"]) if "r" in fields else None,
                PurgeProgress(*_unpacked(fields["p"])) if "p" in fields else None,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataUnreadable(
                f"the committed offset {next_offset} carries metadata that is not the proxy's "
                f"({error}): {str(metadata)[:200]!r}"
            ) from None


class TooManyPolicies(ValueError):
    """The metadata has no room for another policy, because old records are still pending."""


class MetadataUnreadable(ValueError):
    """Another program or an unknown version wrote the committed offset."""


def _cursor_shown(cursor: int) -> int | None:
    return None if cursor == LAST_OFFSET else cursor


def _cursor_read(cursor: int | None) -> int:
    return LAST_OFFSET if cursor is None else whole(cursor)


def _packed(offset: int, watermark: Watermark) -> list[int | None]:
    return [offset, watermark.fires_ms, _cursor_shown(watermark.offset)]


def _unpacked(fields: Sequence[int]) -> tuple[int, Watermark]:
    offset, fires_ms, cursor = fields
    return whole(offset), Watermark(whole(fires_ms), _cursor_read(cursor))


def _pruned(policies: Sequence[PolicyFrom], floor: int) -> list[PolicyFrom]:
    """Drop the policies that apply only to offsets below the floor."""
    following = [*policies[1:], PolicyFrom(floor + 1, "")]
    return [p for p, after in zip(policies, following, strict=True) if after.first_offset > floor]
