"""Looks through a shard's store for what purges have ended, a bounded piece at a time.

docs/exactly-once.md#purges. One pass for each purge: what it has ended gets its outcome, with the
transactions that are made anyway; what was told before, and still lies in the store after a
takeover, is deleted there.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from proxy.records.body import GONE_BODY, is_stub
from proxy.records.delivery import delivery_of
from proxy.records.position import LAST_OFFSET, NEVER_MS, PurgeProgress, Watermark
from proxy.requests.parsed import ParsedRecord, Scheduled
from proxy.scheduling.batch import SweptEntry
from proxy.scheduling.half_messages import ReadBack
from proxy.scheduling.purges import NOTHING_YET, Purges
from storage.store import Entry, Key, Scanned, Wants

LOOKED_AT: Final = 300
"""For one piece: about what a transaction tells, so that each turn has as much to do."""
LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
END: Final[Key] = (NEVER_MS, LAST_OFFSET)
MOST_JUMPS: Final = 16
JUMP_OFFSETS: Final = 500
"""Bodies left in Kafka are read again: so many places of the ingress for one piece."""

Scan: TypeAlias = Callable[[Key, int, Wants, int, int], Scanned]
Delete: TypeAlias = Callable[[Key, str], None]


class SweepLimits(NamedTuple):
    """What one shard's next transaction may tell: so many `swept`, and `in_all` with those that
    pend."""

    swept: int
    in_all: int

    def beside(self, pending: int) -> int:
        """How many, beside so many that pend."""
        return min(self.swept, self.in_all - pending)


IDLE: Final = SweepLimits(0, 0)


class Sweep:
    """The pass through the store of one shard, and its place there.

    `scan` shows what is not deleted yet, `delete` lets go of one entry.
    """

    def __init__(self, purges: Purges, scan: Scan, delete: Delete, read_back: ReadBack) -> None:
        self._purges, self._scan, self._delete = purges, scan, delete
        self._read_back = read_back
        self._below: int | None = None
        self._wants: Wants = None
        self._after: Key = NOTHING_YET
        self._piece: list[SweptEntry] = []
        self._offered = 0
        """How many of these the transaction under way is to tell."""

    @property
    def is_under_way(self) -> bool:
        """Whether there is anything to look for."""
        return self._purges.first_unswept is not None

    def piece(self, ended: Key, beyond: Key, most: int) -> Sequence[SweptEntry]:
        """What the next transaction is to tell, `most` at most; the same again until it is `told`.

        ended: the committed watermark. beyond: the one to be committed; what fires by then ends
        with it, if it is, and must be found again, if not."""
        if most <= 0:
            return ()
        if self._piece:
            self._piece = [swept for swept in self._piece if swept.key > ended]
        if not self._piece and self.is_under_way:
            self._look(ended)
        offered = [swept for swept in self._piece if swept.key > beyond][:most]
        self._offered = len(offered)
        return offered

    def look_ahead(self, ended: Key) -> None:
        """While a transaction commits, look for what the next one is to tell. ended: as above."""
        if self._piece and len(self._piece) <= self._offered and self._after < END:
            self._look(ended)

    def progress_after(self, piece: Sequence[SweptEntry]) -> PurgeProgress | None:
        """What is committed with this piece."""
        progress = self._purges.progress
        if progress is None or not piece:
            return progress
        return PurgeProgress(progress.at, Watermark(*piece[-1].key))

    def told(self, piece: Sequence[SweptEntry]) -> None:
        """This piece is committed."""
        if piece:
            for swept in piece:
                self._delete(swept.key, swept.target)
            self._purges.progress = self.progress_after(piece)
            last = piece[-1].key
            self._piece = [swept for swept in self._piece if swept.key > last]
            self._offered = 0

    def _look(self, ended: Key) -> None:
        """A look at what comes next: what was told before is deleted, the rest is the piece."""
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
        """The purges below this offset are looked for together: all that were told, and the first
        that was not."""
        if self._below is None:
            progress = self._purges.progress
            self._below = 1 + (self._purges.last if progress is None else progress.at)
            self._after = NOTHING_YET
            sought = self._purges.unswept(self._below)
            self._wants = cache(lambda target: any(purge.is_for(target) for purge in sought))
        return self._below

    def _take(self, entry: Entry, below: int) -> None:
        key, target, delivery = entry[:2], entry[2], delivery_of(entry)
        at = self._purges.ending(entry[1], target, delivery.due_ms)
        if at is None or at >= below:
            return
        if self._purges.is_told(at, key):
            self._delete(key, target)
        else:
            self._piece.append(SweptEntry(key, target, self._purges.outcome(delivery, at)))


def with_bodies(found: Scanned, read_back: ReadBack) -> Scanned:
    """With the bodies that were left in Kafka; the first ones, where all would take long."""
    entries, upto = found
    if not any(is_stub(entry[3]) for entry in entries):
        return found
    while len(entries) > 1 and _jumps(entries) > MOST_JUMPS:
        entries = entries[: len(entries) // 2]
        upto = entries[-1][:2]
    parsed = read_back(sorted(entry[1] for entry in entries if is_stub(entry[3])))
    return Scanned([_with_body(entry, parsed.get(entry[1])) for entry in entries], upto)


def _jumps(entries: Sequence[Entry]) -> int:
    """How many places of the ingress their records lie at."""
    offsets = sorted(entry[1] for entry in entries)
    return 1 + sum(after - before > JUMP_OFFSETS for before, after in pairwise(offsets))


def _with_body(entry: Entry, parsed: ParsedRecord | None) -> Entry:
    if not is_stub(entry[3]):
        return entry
    return parsed.entry if isinstance(parsed, Scheduled) else (*entry[:3], GONE_BODY)
