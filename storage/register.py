"""What a shard keeps of ids: which entry each one names, and which entries were deleted."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from storage.store import TargetCounts

Key: TypeAlias = tuple[int, int]
"""(fires_ms, offset): the order in which entries fire."""

NOTHING = -1


class Named(NamedTuple):
    """What is known of an id.

    latest: offset of the last record or cancel a producer wrote with it, NOTHING if none is known.
    (fires_ms, offset): key of the entry that it names; `offset` is NOTHING where it names none.
    origin: offset of the ingress record which that entry delivers, due_ms: when that is due.
    kind: 32 bits that mean something to the caller alone.
    """

    latest: int
    fires_ms: int = NOTHING
    offset: int = NOTHING
    origin: int = NOTHING
    due_ms: int = NOTHING
    target: str = ""
    kind: int = 0

    @property
    def key(self) -> Key:
        """Key of the entry that the id names."""
        return self.fires_ms, self.offset


class Register(Protocol):
    """The ids of one shard. `at` is the ingress offset of what caused a change: it never falls,
    and never lies below a `settled_offset` given before.

    An id is useless, and may be forgotten, once `latest` and `offset` lie below the floor and the
    key is at or below the watermark (or there is none).
    """

    @property
    def covered(self) -> int:
        """Every change caused by ingress offsets below this is reflected on disk."""
        ...

    @property
    def memtable_bytes(self) -> int:
        """About what the changes that are not on disk yet take in memory."""
        ...

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Named]:
        """What is known of those of `ids` of which anything is, as of the last `put`."""
        ...

    def put(self, at: int, ident: bytes, named: Named) -> None:
        """From `at` on this is what is known of `ident`."""
        ...

    def put_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        """Put each of these ids, at least one, at its own offset; the offsets rise. Its record
        names the entry that delivers it.

        False, and nothing put, when something is, or seems to be, known of any, or when one is
        there twice."""
        ...

    def add_tombstone(self, at: int, key: Key, target: str) -> None:
        """The pending entry with this key was deleted (cancelled, replaced) by the record at offset
        `at`: it is not delivered.

        Once for each key; one that is at or below the watermark is ignored."""
        ...

    def tombstones(self, after: Key, upto: Key) -> set[Key]:
        """Keys of deleted entries beyond `after`, up to and with `upto`."""
        ...

    def deleted(self, keys: Sequence[Key]) -> set[Key]:
        """Those of these keys, which are in order, that belong to deleted entries."""
        ...

    def tombstones_by_target(self) -> TargetCounts:
        """How many entries beyond the watermark are deleted, for each target; by name for a bounded
        number of them."""
        ...

    def link(self, at: int, low: int, high: int, until_ms: int | None) -> None:
        """Whoever reads `high` again must have read `low`: no floor may lie in (low, high], before
        the watermark is beyond `until_ms` (None: ever).

        `low` is not below the committed floor."""
        ...

    def lowered(self, floor: int) -> int:
        """The highest floor at or below `floor` that no link forbids.

        Links below the committed floor, which `maintain` is told, are forgotten."""
        ...

    def of_kind(self, bit: int) -> Iterator[tuple[bytes, Named]]:
        """Ids whose `kind` has this bit and whose entry lies beyond the watermark."""
        ...

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """Everything with a key at or below (watermark_ms, cursor) has ended."""
        ...

    def maintain(self, settled_offset: int, floor: int) -> bool:
        """Do one bounded piece of work; True when more waits.

        `covered` never exceeds `settled_offset`, which is the lower of the committed next offset
        and of what the store covers; while changes are done again after a restart, also of the
        offset that comes next. `floor` is the committed one.

        Raises StorageFull (kept, tried again) or StoreDamaged."""
        ...

    def request_flush(self) -> None:
        """Let `maintain` write out what is in memory as soon as it is settled, however little."""
        ...

    def flush(self, settled_offset: int, floor: int) -> None:
        """Write all changes below `settled_offset` (clean stop, partition revoked)."""
        ...

    def close(self) -> None:
        """Release files; writes nothing, so that it equals a crash."""
        ...
