"""Which records the purges of a shard end, and how far that has been said.

docs/exactly-once.md#purges. A purge ends what waits in the order of the log, at once. The outcomes
follow: `sweep` looks for the records, and what falls due before it is found ends then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from proxy.protocol.body import Delivery, IngressPartition, delivery_of
from proxy.protocol.headers import ID
from proxy.protocol.outcomes import CANCELLED, PURGED_BY, Outcome
from proxy.protocol.parsed import Purge
from proxy.protocol.position import NEVER_MS, Position, PurgeProgress, Watermark
from storage.register import NOTHING, Named, Register
from storage.store import Entry, Key

IS_PURGE: Final = 8
"""Kind of `Named`, beside those of `scheduling.identities`."""
NAME_BYTES: Final = 320
"""Longer than any id, and than the name of a receipt."""
NOTHING_YET: Final = Watermark(-1, -1)


class Purges:
    """The purges of one shard, all that a record may still be ended by.

    `position` is the committed one. Local state keeps each purge from where it was read; how far
    the outcomes have come is committed, `progress` in memory.
    """

    def __init__(self, ingress: IngressPartition, register: Register, position: Position) -> None:
        self._ingress, self._register = ingress, register
        self.position, self.progress = position, position.purge
        known = sorted(_purge_of(name) for name, _ in register.of_kind(IS_PURGE))
        self._offsets = [offset for offset, _ in known]
        self._purges = [purge for _, purge in known]
        self._swept_below = 0

    @property
    def first_unswept(self) -> int | None:
        """The first purge that may end what still lies in the store: no floor lies beyond it."""
        index = bisect_left(self._offsets, self._swept_below)
        return self._offsets[index] if index < len(self._offsets) else None

    @property
    def last(self) -> int:
        """Offset of the last purge; NOTHING where there is none."""
        return self._offsets[-1] if self._offsets else NOTHING

    def between(self, first: int, below: int) -> list[tuple[int, Purge]]:
        """Those known that were written at these offsets."""
        index, end = bisect_left(self._offsets, first), bisect_left(self._offsets, below)
        return list(zip(self._offsets[index:end], self._purges[index:end], strict=True))

    def add(self, offset: int, purge: Purge) -> None:
        """A purge is read at this offset, perhaps again."""
        if offset <= self.last:
            return
        self._offsets.append(offset)
        self._purges.append(purge)
        row = Named(offset, NEVER_MS, offset, offset, kind=IS_PURGE)
        self._register.put(offset, _name_of(offset, purge), row)
        if offset >= self.position.next_offset and self.progress is None:
            self.progress = PurgeProgress(offset, NOTHING_YET)

    def ending(self, offset: int, target: str, due_ms: int) -> int | None:
        """Offset of the purge that ends what waits at `offset` for this target, if one does."""
        for index in range(bisect_right(self._offsets, offset), len(self._offsets)):
            if self._purges[index].ends(target, due_ms):
                return self._offsets[index]
        return None

    def is_told(self, at: int, key: Key) -> bool:
        """Whether the purge at this offset has ended the entry with an outcome before."""
        progress = self.progress
        return progress is None or (at, key) <= progress

    def without_ended(self, entries: list[Entry]) -> tuple[list[Entry], list[Outcome]]:
        """Of entries that are due those that no purge ended, and outcomes that are still to be."""
        if self.first_unswept is None:
            return entries, []
        kept: list[Entry] = []
        outcomes: list[Outcome] = []
        for entry in entries:
            delivery = delivery_of(entry)
            at = self.ending(entry[1], entry[2], delivery.due_ms)
            if at is None:
                kept.append(entry)
            elif not self.is_told(at, entry[:2]):
                outcomes.append(self.outcome(delivery, at))
        return kept, outcomes

    def outcome(self, delivery: Delivery, at: int) -> Outcome:
        """How a record ends by the purge at this offset."""
        return Outcome(
            delivery.offset,
            CANCELLED,
            delivery.due_ms,
            delivery.header(ID),
            self.detail(at),
            target=delivery.target,
        )

    def detail(self, at: int) -> str:
        """What is said of whatever the purge at this offset has ended."""
        return PURGED_BY + self._ingress.origin(at)

    def unswept(self, below: int) -> Sequence[Purge]:
        """The purges below this offset that may end what still lies in the store."""
        first = bisect_left(self._offsets, self._swept_below)
        return self._purges[first : bisect_left(self._offsets, below)]

    def swept(self, below: int) -> None:
        """Nothing lies in the store any more that a purge below this offset has ended."""
        self._swept_below = below
        if self.progress is not None and self.progress.at < below:
            following = self.first_unswept
            self.progress = None if following is None else PurgeProgress(following, NOTHING_YET)

    def forget(self, at: int) -> None:
        """What no purge can end any more needs none; `at`: where the register's changes are."""
        floor = min(self.position.floor, self._swept_below)
        while self._offsets and self._offsets[0] < floor:
            offset, purge = self._offsets.pop(0), self._purges.pop(0)
            self._register.put(at, _name_of(offset, purge), Named(NOTHING))


def _name_of(offset: int, purge: Purge) -> bytes:
    """Under which the register of ids keeps it."""
    text = f"purge/{offset}/{purge.due_from_ms}/{purge.due_to_ms}/{purge.targets}"
    return text.encode().ljust(NAME_BYTES, b"\0")


def _purge_of(name: bytes) -> tuple[int, Purge]:
    _, offset, from_ms, to_ms, targets = name.rstrip(b"\0").decode().split("/")
    return int(offset), Purge(targets, int(from_ms), int(to_ms))
