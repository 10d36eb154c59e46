"""The purges of a shard, and the sweep that finds their records in the store.

All records of a purge end when the purge is ingested. Each record's outcome is written later, when
the sweep finds the record or when the record falls due (docs/exactly-once.md#purges).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol.body import GONE_BODY, Delivery, IngressPartition, delivery_of, is_stub
from proxy.protocol.headers import ID
from proxy.protocol.outcomes import CANCELLED, PURGED_BY, Outcome
from proxy.protocol.parsed import ParsedRecord, Purge, Scheduled
from proxy.protocol.position import LAST_OFFSET, NEVER_MS, Position, PurgeProgress, Watermark
from proxy.scheduling.batch import SweptEntry
from proxy.scheduling.half_messages import ReadBack
from storage.ids.register import Register
from storage.store import NOTHING, Entry, Key, Named, Scanned, Wants

IS_PURGE: Final = 8
"""A bit of `Named.kind`. The other bits are in `scheduling.identities`."""
NAME_BYTES: Final = 320
"""Length of a purge's padded name in the register. All other names there are shorter."""
NOTHING_YET: Final = Watermark(-1, -1)

LOOKED_AT: Final = 300
"""The sweep looks at this many entries at a time, for the outcomes of one transaction."""
LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
END: Final[Key] = (NEVER_MS, LAST_OFFSET)
MOST_JUMPS: Final = 16
JUMP_OFFSETS: Final = 500
"""Bodies that are only in Kafka are read back, at no more than MOST_JUMPS places for one piece.
Offsets with gaps of at most JUMP_OFFSETS share a place."""

Scan: TypeAlias = Callable[[Key, int, Wants, int, int], Scanned]
Delete: TypeAlias = Callable[[Key, str], None]


class Purges:
    """All purges of one shard that may still end a record. `progress` says which of their outcomes
    are committed. The register keeps each purge once it is ingested."""

    def __init__(self, ingress: IngressPartition, register: Register, position: Position) -> None:
        self._ingress, self._register = ingress, register
        self.position, self.progress = position, position.purge
        known = sorted(_purge_of(name) for name, _ in register.of_kind(IS_PURGE))
        self.offsets = [offset for offset, _ in known]
        self._purges = [purge for _, purge in known]
        self._swept_below = 0

    @property
    def first_unswept(self) -> int | None:
        """Offset of the first purge that is not completely swept. The floor never passes it."""
        index = bisect_left(self.offsets, self._swept_below)
        return self.offsets[index] if index < len(self.offsets) else None

    @property
    def last(self) -> int:
        return self.offsets[-1] if self.offsets else NOTHING

    def between(self, first: int, below: int) -> list[tuple[int, Purge]]:
        index, end = bisect_left(self.offsets, first), bisect_left(self.offsets, below)
        return list(zip(self.offsets[index:end], self._purges[index:end], strict=True))

    def add(self, offset: int, purge: Purge) -> None:
        """Add the purge at this offset. Ignore a known purge, which a replay reads again."""
        if offset <= self.last:
            return
        self.offsets.append(offset)
        self._purges.append(purge)
        row = Named(offset, NEVER_MS, offset, offset, kind=IS_PURGE)
        self._register.put(offset, _name_of(offset, purge), row)
        if offset >= self.position.next_offset and self.progress is None:
            self.progress = PurgeProgress(offset, NOTHING_YET)

    def ending(self, offset: int, target: str, due_ms: int) -> int | None:
        for index in range(bisect_right(self.offsets, offset), len(self.offsets)):
            if self._purges[index].ends(target, due_ms):
                return self.offsets[index]
        return None

    def is_recorded(self, at: int, key: Key) -> bool:
        """Return whether the entry's outcome by the purge at offset `at` is committed."""
        progress = self.progress
        return progress is None or (at, key) <= progress

    def without_ended(self, entries: list[Entry]) -> tuple[list[Entry], list[Outcome]]:
        """Return the due entries that no purge ended, and the unwritten outcomes of the others."""
        if self.first_unswept is None:
            return entries, []
        kept: list[Entry] = []
        outcomes: list[Outcome] = []
        for entry in entries:
            delivery = delivery_of(entry)
            at = self.ending(entry[1], entry[2], delivery.due_ms)
            if at is None:
                kept.append(entry)
            elif not self.is_recorded(at, entry[:2]):
                outcomes.append(self.outcome(delivery, at))
        return kept, outcomes

    def outcome(self, delivery: Delivery, at: int) -> Outcome:
        ident, target = delivery.header(ID), delivery.target
        return Outcome(
            delivery.offset, CANCELLED, delivery.due_ms, ident, self.detail(at), target=target
        )

    def detail(self, at: int) -> str:
        return PURGED_BY + self._ingress.origin(at)

    def unswept(self, below: int) -> Sequence[Purge]:
        first = bisect_left(self.offsets, self._swept_below)
        return self._purges[first : bisect_left(self.offsets, below)]

    def swept(self, below: int) -> None:
        self._swept_below = below
        if self.progress is not None and self.progress.purge_offset < below:
            following = self.first_unswept
            self.progress = None if following is None else PurgeProgress(following, NOTHING_YET)

    def forget(self, at: int) -> None:
        """Forget purges that can end no other record. The register drops them at offset `at`."""
        floor = min(self.position.floor, self._swept_below)
        while self.offsets and self.offsets[0] < floor:
            offset, purge = self.offsets.pop(0), self._purges.pop(0)
            self._register.put(at, _name_of(offset, purge), Named(NOTHING))


def _name_of(offset: int, purge: Purge) -> bytes:
    text = f"purge/{offset}/{purge.due_from_ms}/{purge.due_to_ms}/{purge.targets}"
    return text.encode().ljust(NAME_BYTES, b"\0")


def _purge_of(name: bytes) -> tuple[int, Purge]:
    _, offset, from_ms, to_ms, targets = name.rstrip(b"\0").decode().split("/")
    return int(offset), Purge(targets, int(from_ms), int(to_ms))


class SweepLimits(NamedTuple):
    """Limits for a shard's next transaction: for swept entries, and for due and swept entries
    together."""

    swept: int
    in_all: int

    def beside(self, pending: int) -> int:
        return min(self.swept, self.in_all - pending)


IDLE: Final = SweepLimits(0, 0)


class Sweep:
    """Walks through the store of one shard, a bounded piece at a time. The next transaction writes
    the outcomes of the piece's purged entries. After a takeover the sweep begins again, and deletes
    entries whose outcomes are already written."""

    def __init__(self, purges: Purges, scan: Scan, delete: Delete, read_back: ReadBack) -> None:
        self._purges, self._scan, self._delete = purges, scan, delete
        self._read_back = read_back
        self._below: int | None = None
        self._wants: Wants = None
        self._after: Key = NOTHING_YET
        self._piece: list[SweptEntry] = []
        self._offered = 0
        """Number of entries of the piece that are in the uncommitted transaction."""

    def piece(self, ended: Key, beyond: Key, most: int) -> Sequence[SweptEntry]:
        """Return purged entries for the next transaction: the same entries until `note_written`.
        Entries up to `beyond`, the next watermark, are left out, because the plan ends them."""
        if most <= 0:
            return ()
        if self._piece:
            self._piece = [swept for swept in self._piece if swept.key > ended]
        if not self._piece and self._purges.first_unswept is not None:
            self._look(ended)
        offered = [swept for swept in self._piece if swept.key > beyond][:most]
        self._offered = len(offered)
        return offered

    def look_ahead(self, ended: Key) -> None:
        """Look for the following piece while a transaction commits."""
        if self._piece and len(self._piece) <= self._offered and self._after < END:
            self._look(ended)

    def progress_after(self, piece: Sequence[SweptEntry]) -> PurgeProgress | None:
        progress = self._purges.progress
        if progress is None or not piece:
            return progress
        return PurgeProgress(progress.purge_offset, Watermark(*piece[-1].key))

    def note_written(self, piece: Sequence[SweptEntry]) -> None:
        if piece:
            for swept in piece:
                self._delete(swept.key, swept.target)
            self._purges.progress = self.progress_after(piece)
            last = piece[-1].key
            self._piece = [swept for swept in self._piece if swept.key > last]
            self._offered = 0

    def _look(self, ended: Key) -> None:
        below = self._pass()
        after = max(self._after, ended)
        if after >= END:
            self._purges.swept(below)
            self._below = None
            return
        found = self._scan(after, NEVER_MS, self._wants, LOOKED_AT, LOOKED_AT_BYTES)
        entries, self._after = with_bodies(found, self._read_back)
        for entry in entries:
            self._take(entry, below)

    def _pass(self) -> int:
        """Return the offset below which purges belong to this walk through the store. The walk's
        last purge is the first purge with unwritten outcomes, or else the newest purge."""
        if self._below is None:
            progress = self._purges.progress
            self._below = 1 + (self._purges.last if progress is None else progress.purge_offset)
            self._after = NOTHING_YET
            sought = self._purges.unswept(self._below)
            self._wants = cache(lambda target: any(purge.is_for(target) for purge in sought))
        return self._below

    def _take(self, entry: Entry, below: int) -> None:
        key, target, delivery = entry[:2], entry[2], delivery_of(entry)
        at = self._purges.ending(entry[1], target, delivery.due_ms)
        if at is None or at >= below:
            return
        if self._purges.is_recorded(at, key):
            self._delete(key, target)
        else:
            self._piece.append(SweptEntry(key, target, self._purges.outcome(delivery, at)))


def with_bodies(found: Scanned, read_back: ReadBack) -> Scanned:
    """Read back bodies that are only in Kafka. Return fewer entries if bodies lie far apart."""
    entries, upto = found
    if not any(is_stub(entry[3]) for entry in entries):
        return found
    while len(entries) > 1 and _jumps(entries) > MOST_JUMPS:
        entries = entries[: len(entries) // 2]
        upto = entries[-1][:2]
    parsed = read_back(sorted(entry[1] for entry in entries if is_stub(entry[3])))
    return Scanned([_with_body(entry, parsed.get(entry[1])) for entry in entries], upto)


def _jumps(entries: Sequence[Entry]) -> int:
    offsets = sorted(entry[1] for entry in entries)
    return 1 + sum(after - before > JUMP_OFFSETS for before, after in pairwise(offsets))


def _with_body(entry: Entry, parsed: ParsedRecord | None) -> Entry:
    if not is_stub(entry[3]):
        return entry
    return parsed.entry if isinstance(parsed, Scheduled) else (*entry[:3], GONE_BODY)
