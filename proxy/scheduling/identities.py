"""The ids by which pending records are replaced, cancelled, recalled or moved."""

from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from proxy.protocol.body import delivery_of
from proxy.protocol.outcomes import (
    APPLIED,
    CANCELLED,
    MISSED,
    MOVED,
    REPLACED,
    REQUEUED,
    Outcome,
    as_ingested,
)
from proxy.protocol.parsed import Moved, ParsedRecord, Prepare, Recall, RejectedHop, Scheduled
from proxy.protocol.position import NEVER_MS, Position
from proxy.protocol.proofs import proofs_of, recall_names, receipt_name
from proxy.scheduling.half_messages import HalfMessages, ReadBack
from proxy.scheduling.missed_moves import MissedMoves
from proxy.scheduling.purges import Purges
from storage.ids.register import Register
from storage.store import NOTHING, Entry, Key, Named

# See docs/exactly-once.md#ids and rule 10. A rewritten record is in mid-hop until its successor is
# ingested. A cancel in mid-hop, or a newer record with its id, ends the successor as it arrives.

MOST_PAUSES: Final = 100
IS_HALF_MESSAGE: Final = 1
ROLLS: Final = 2
IS_CANCEL: Final = 4
"""Bits of `Named.kind`: the entry is a half message; the entry rolls; `latest` is a cancel or
recall."""


class Identities:
    """The ids of one shard. `position` is committed. A row is the register's `Named` for a name. A
    name is an id, or is made from a receipt (`protocol.proofs`)."""

    def __init__(
        self,
        register: Register,
        half_messages: HalfMessages,
        purges: Purges,
        position: Position,
    ) -> None:
        self.register, self._half_messages, self._purges = register, half_messages, purges
        self.position = position
        self._rows: dict[bytes, Named] = {}
        self.hopping = set[tuple[bytes, int]]()
        """Name and offset of each entry in mid-hop. Several entries may have one name."""
        self.last_resumed: dict[int, int] = {}
        """End of a pause (IS_PAUSED during the pause) -> newest offset that the pause held back."""

    def load_half_messages(self, at: int) -> None:
        """Load the half messages that the register has. Half messages below the floor have been
        decided, so the register forgets them."""
        rows = list(self.register.of_kind(IS_HALF_MESSAGE))
        floor = self.position.floor
        self._half_messages.load((row.offset, ident) for ident, row in rows if row.offset >= floor)
        for ident, row in rows:
            if row.offset < floor:
                self._put(at, ident, Named(row.latest))

    def look_up(self, idents: list[bytes]) -> None:
        self._rows = self.register.find(idents) if idents else {}

    def lowest(self, floor: int) -> int:
        """Return the highest floor, at most `floor`, from which a replay has the same outcomes."""
        if self.hopping:
            floor = min(floor, *(offset for _, offset in self.hopping))
        firsts = self._half_messages.first_offset, self._purges.first_unswept
        return min([floor, *(first for first in firsts if first is not None)])

    def register_new(self, entry: Entry, ident: bytes, due_ms: int) -> bool:
        """Register a record with a new id. Such a record ends no other record. Return False if the
        id is known: then `admit` must decide."""
        if ident in self._rows:
            return False
        fires_ms, offset, target, _body = entry
        kind = ROLLS if fires_ms < due_ms else 0
        self._put(offset, ident, Named(offset, fires_ms, offset, offset, due_ms, target, kind))
        return True

    def admit(self, offset: int, scheduled: Scheduled) -> tuple[list[Outcome], bool]:
        """Ingest a record. Return outcomes, and whether the record becomes pending or is delivered.
        If not, one of the outcomes is the record's own."""
        ident, hop_from = scheduled.ident, scheduled.hop_from
        if hop_from is not None:
            ended = self._land(offset, scheduled, hop_from)
            return ([] if ended is None else [ended]), ended is None
        if ident is None:
            return [], True
        ended_by_it, _found = self._supersede(offset, ident, self._row(ident), REPLACED)
        self._put(offset, ident, _row_of(offset, scheduled, offset))
        return ended_by_it, True

    def move(self, offset: int, scheduled: Scheduled, moved: Moved) -> Outcome | None:
        """Let a move replace the entry that it names. Return the entry's outcome. If the entry is
        not known to be pending, return None: then the move has missed."""
        ident, hop_from, target = scheduled.ident, scheduled.hop_from, scheduled.entry[2]
        assert hop_from is not None, scheduled
        origin = self._pending_origin(hop_from, ident, scheduled.first)
        if origin is None or self.is_purged(hop_from, target, moved.due_ms):
            return None
        if not self.move_again(offset, scheduled, moved):
            return None
        what = REQUEUED if moved.due_ms == scheduled.due_ms else REPLACED
        return Outcome(origin, what, moved.due_ms, ident, MOVED, offset, target)

    def move_again(self, offset: int, scheduled: Scheduled, moved: Moved) -> bool:
        """Delete the entry that a move replaces. Return False if the entry has ended. A replay does
        not decide whether the move missed, because missed moves are left out of a replay."""
        hop_from, target = scheduled.hop_from or 0, scheduled.entry[2]
        key = moved.fires_ms, hop_from
        pends = hop_from >= self.position.floor and key > self.position.ended_upto(hop_from)
        if pends:
            self.register.add_tombstone(offset, key, target)
        return pends

    def _pending_origin(self, hop_from: int, ident: bytes | None, first: int | None) -> int | None:
        if ident is not None:
            row = self._row(ident)
            is_current = row.offset == hop_from and not row.kind & IS_HALF_MESSAGE
            return row.origin if is_current else None
        newest = self._row(receipt_name(hop_from if first is None else first))
        is_current = newest.offset in (NOTHING, hop_from) and not newest.kind & IS_CANCEL
        return hop_from if is_current else None

    def _land(self, offset: int, scheduled: Scheduled, hop_from: int) -> Outcome | None:
        """Ingest a rewritten record. Return its outcome if it was cancelled, replaced or purged in
        mid-hop."""
        ident, target, due_ms = scheduled.ident, scheduled.entry[2], scheduled.due_ms
        row = self._landed(ident, hop_from, scheduled.first, scheduled.proofs)
        purge = self._purges.ending(hop_from, target, due_ms)
        is_purged = purge is not None and not hop_from < row.latest < purge
        is_ended = scheduled.moved is None and (is_purged or row.latest > hop_from)
        if scheduled.resumed_ms is not None and not is_ended:
            self.last_resumed.pop(scheduled.resumed_ms, None)
            self.last_resumed[scheduled.resumed_ms] = offset
            if len(self.last_resumed) > MOST_PAUSES:
                del self.last_resumed[next(iter(self.last_resumed))]
        if not is_ended and ident is not None:
            self._put(offset, ident, _row_of(offset, scheduled, row.latest))
        if scheduled.first is not None:
            newest = (
                Named(offset, kind=IS_CANCEL) if is_ended else _row_of(offset, scheduled, offset)
            )
            self._put(offset, receipt_name(scheduled.first), newest)
        if not is_ended:
            return None
        until_ms = None if scheduled.rolls else scheduled.entry[0]
        if purge is not None and is_purged:
            if ident is not None and row.offset == hop_from:
                self._put(offset, ident, Named(row.latest))
            self.register.link(offset, purge, offset, until_ms)
            detail = self._purges.detail(purge)
            return Outcome(offset, CANCELLED, due_ms, ident, detail, target=target)
        ended = self._ended_in_mid_hop(offset, due_ms, ident, row, until_ms)
        return ended._replace(target=target)

    def prepare(self, offset: int, prepare: Prepare) -> list[Outcome]:
        ident, target = prepare.ident, prepare.entry[2]
        ended, _found = self._supersede(offset, ident, self._row(ident), REPLACED)
        self._half_messages.add(offset, prepare)
        row = Named(offset, NEVER_MS, offset, offset, prepare.due_ms, target, IS_HALF_MESSAGE)
        self._put(offset, ident, row)
        return ended

    def cancel(self, offset: int, ident: bytes) -> list[Outcome]:
        """Apply a cancel. Return the outcomes, with the outcome of the cancel."""
        ended, found = self._supersede(offset, ident, self._row(ident), CANCELLED)
        self._put(offset, ident, Named(offset, kind=IS_CANCEL))
        detail = "" if found else "no record with this id is pending"
        return [*ended, Outcome(offset, APPLIED if found else MISSED, None, ident, detail)]

    def half_message_of(self, ident: bytes) -> Named | None:
        row = self._row(ident)
        return row if row.kind & IS_HALF_MESSAGE else None

    def commit(self, offset: int, ident: bytes, half: Named, fires_ms: int, *, rolls: bool) -> None:
        """Commit the half message. The commit's entry takes over the half message's id."""
        self._half_messages.discard(half.offset)
        self.register.link(offset, half.offset, offset, None if rolls else fires_ms)
        kind = ROLLS if rolls else 0
        row = Named(half.latest, fires_ms, offset, half.origin, half.due_ms, half.target, kind)
        self._put(offset, ident, row)

    def drop(self, offset: int, ident: bytes, half: Named) -> None:
        self._half_messages.discard(half.offset)
        self._put(offset, ident, Named(half.latest))

    def reject_hop(self, offset: int, hop: RejectedHop) -> Outcome | None:
        """Note that a rewritten record was rejected. Return its outcome if it was cancelled or
        replaced in mid-hop."""
        row = self._landed(hop.ident, hop.hop_from, hop.first, hop.proofs)
        if hop.first is not None:
            self.note_recall(offset, receipt_name(hop.first))
        if row.latest > hop.hop_from and hop.moved is None:
            return self._ended_in_mid_hop(offset, None, hop.ident, row, until_ms=None)
        if hop.ident is not None and row.offset == hop.hop_from:
            self._put(offset, hop.ident, Named(row.latest))
        return None

    def known(self, name: bytes) -> Named:
        if name not in self._rows:
            self._rows.update(self.register.find([name]))
        return self._row(name)

    def recall_named(self, offset: int, ident: bytes, record: int) -> list[Outcome] | None:
        """End the record at offset `record` if the id names it. Return None if the record ended
        before. The row keeps `latest`, so that replaced records stay replaced in a replay."""
        row = self.known(ident)
        if record not in (row.offset, row.origin):
            return None
        ended, found = self._supersede(offset, ident, row, CANCELLED)
        if not found:
            return None
        self._put(offset, ident, Named(row.latest))
        return ended

    def note_recall(self, offset: int, *names: bytes) -> None:
        """Note a recall under these names. A successor with one of the names ends as it arrives."""
        for name in names:
            self._put(offset, name, Named(offset, kind=IS_CANCEL))

    def is_purged(self, offset: int, target: str, due_ms: int) -> bool:
        return self._purges.ending(offset, target, due_ms) is not None

    def _landed(
        self, ident: bytes | None, hop_from: int, first: int | None, proofs: tuple[bytes, ...]
    ) -> Named:
        """Note that the successor has arrived. Return the row of its id. If a recall came in
        mid-hop, return the row of the recall."""
        receipt = b"" if first is None else receipt_name(first)
        name = receipt if ident is None else ident
        self.hopping.discard((name, hop_from))
        row = Named(NOTHING) if ident is None else self._row(ident)
        recall = self._last_recall(first, proofs)
        is_recalled = row.latest <= hop_from < recall.latest
        return recall if is_recalled else row

    def _last_recall(self, first: int | None, proofs: tuple[bytes, ...]) -> Named:
        if first is None:
            return Named(NOTHING)
        rows = map(self._row, (receipt_name(first), *recall_names(first, proofs)))
        recalls = [row for row in rows if row.kind & IS_CANCEL]
        return max(recalls, key=attrgetter("latest"), default=Named(NOTHING))

    def _row(self, ident: bytes) -> Named:
        return self._rows.get(ident) or Named(NOTHING)

    def _put(self, at: int, ident: bytes, row: Named) -> None:
        self._rows[ident] = row
        self.register.put(at, ident, row)

    def _supersede(
        self, at: int, ident: bytes, row: Named, what: str
    ) -> tuple[list[Outcome], bool]:
        by = at if what == REPLACED else None
        ended = Outcome(row.origin, what, row.due_ms, ident, "", by, row.target)
        if row.kind & IS_HALF_MESSAGE:
            self._half_messages.discard(row.offset)
            return [ended], True
        if self._pends(row):
            self.register.add_tombstone(at, row.key, row.target)
            return [ended], True
        return [], self._is_hopping(ident, row)

    def _pends(self, row: Named) -> bool:
        is_beyond = row.offset != NOTHING and row.key > self.position.ended_upto(row.offset)
        return is_beyond and not self.is_purged(row.offset, row.target, row.due_ms)

    def _is_hopping(self, ident: bytes, row: Named) -> bool:
        """Return whether the id's entry is in mid-hop. If so, its successor ends on arrival. A
        record that was requeued before a takeover looks delivered (docs/exactly-once.md, rule 10).
        An entry below the floor has ended, perhaps by a purge that is forgotten."""
        if row.offset < self.position.floor or self.is_purged(row.offset, row.target, row.due_ms):
            return False
        return bool(row.kind & ROLLS) or (ident, row.offset) in self.hopping

    def _ended_in_mid_hop(
        self, at: int, due_ms: int | None, ident: bytes | None, row: Named, until_ms: int | None
    ) -> Outcome:
        """Return the outcome of a successor that was ended in mid-hop. Until the watermark has
        passed `until_ms`, the floor must not lie between the successor and the cancel or record
        that ended the successor (rule 4)."""
        self.register.link(at, row.latest, at, until_ms)
        if row.kind & IS_CANCEL:
            return Outcome(at, CANCELLED, due_ms, ident, "cancelled while it was rewritten")
        return Outcome(at, REPLACED, due_ms, ident, next_offset=row.latest)


def _row_of(at: int, scheduled: Scheduled, latest: int) -> Named:
    fires_ms, _offset, target, _body = scheduled.entry
    kind = ROLLS if scheduled.rolls else 0
    return Named(latest, fires_ms, at, at, scheduled.due_ms, target, kind)


# A recall cancels a record by its receipt, the origin that the producer got
# (docs/exactly-once.md#recalls). The shard reads the record again from the ingress to find the
# record's entry. The ingress still has each pending record.

MOST_READ: Final = 32
"""At most this many records are read again for one transaction."""
RECALLED: Final = "recalled"
IS_OVER: Final = "the record has already ended"
NEVER_PENDING: Final = "no record at this origin can be pending"
NO_PROOF: Final = (
    "the recall has neither a key nor a timer-id: give it the key that the record has in the "
    "ingress, or the record's timer-id. Without these, an operator can recall the record through "
    "the admin API"
)
NOT_PROVEN: Final = (
    "no pending record at this origin has the recall's key or timer-id: the record has ended, or "
    "it has another key in the ingress and another id"
)
"""The same text for each wrong proof, so that the text reveals nothing about the record."""


class _Pending(NamedTuple):
    """A record that may be pending. `first`: offset of the producer's record, before all hops."""

    offset: int
    first: int
    key: Key
    target: str
    due_ms: int
    ident: bytes | None
    rolls: bool
    proofs: tuple[bytes, ...]


class Recalls:
    """The recalls of one shard."""

    def __init__(self, read_back: ReadBack, identities: Identities, missed: MissedMoves) -> None:
        self._read_back, self._identities, self._missed = read_back, identities, missed
        self._next: deque[int] = deque()
        self._read: dict[int, _Pending | None] = {}

    def expect(self, offsets: Iterable[int]) -> None:
        """Note the offsets that the next recalls name, in the order of the recalls. So `apply` can
        read up to MOST_READ of these records together."""
        self._next, self._read = deque(offsets), {}

    def apply(self, at: int, recall: Recall) -> list[Outcome]:
        """Apply the recall at `at`. Return all outcomes, with the outcome of the recall."""
        current = self._current(recall.offset)
        if current is None:
            self._identities.note_recall(at, *recall.names)
            return [_missed(at, _unproven(recall, IS_OVER))]
        found = self._pending_record(current)
        is_proven = recall.known is None or (found and set(recall.proofs) & set(found.proofs))
        if found is None or not is_proven:
            return [_missed(at, _unproven(recall, NEVER_PENDING))]
        return self._take_back(at, recall.offset, found)

    def _take_back(self, at: int, offset: int, found: _Pending) -> list[Outcome]:
        newest = self._identities.known(receipt_name(found.first))
        if newest.latest != NOTHING and newest.offset != found.offset:
            return [_missed(at, IS_OVER)]
        ended = self._end(at, found)
        self._identities.note_recall(at, receipt_name(found.first))
        if not ended and offset != found.first:
            self._identities.register.link(at, offset, at, None)
        if ended is None:
            return [_missed(at, IS_OVER)]
        return [*ended, Outcome(at, APPLIED, None, None)]

    def _end(self, at: int, found: _Pending) -> list[Outcome] | None:
        """End the record. Return the outcomes: an empty list if the record is in mid-hop, None if
        the record had ended before."""
        ids = self._identities
        if found.ident is not None:
            return ids.recall_named(at, found.ident, found.offset)
        if ids.is_purged(found.offset, found.target, found.due_ms):
            return None
        if found.key > ids.position.ended_upto(found.offset):
            ids.register.add_tombstone(at, found.key, found.target)
            return [
                Outcome(found.offset, CANCELLED, found.due_ms, None, RECALLED, None, found.target)
            ]
        is_hopping = found.rolls or (receipt_name(found.first), found.offset) in ids.hopping
        return [] if is_hopping else None

    def _current(self, offset: int) -> int | None:
        """Return the offset of the record's newest successor, or its own offset. None: ended.
        Ask only the register, because the ingress may have deleted the record before a replay."""
        row = self._identities.known(receipt_name(offset))
        if row.kind & IS_CANCEL:
            return None
        current = offset if row.offset == NOTHING else row.offset
        return None if current < self._identities.position.floor else current

    def _pending_record(self, offset: int) -> _Pending | None:
        if offset not in self._read:
            count = min(MOST_READ, len(self._next))
            current = [self._current(self._next.popleft()) for _ in range(count)]
            offsets = sorted({offset, *(one for one in current if one is not None)})
            parsed = self._read_back(offsets)
            self._read |= {one: _pending_of(parsed.get(one)) for one in offsets}
        return None if offset in self._missed else self._read[offset]


def _pending_of(parsed: ParsedRecord | None) -> _Pending | None:
    if not isinstance(parsed, Scheduled | Prepare):
        return None
    entry, ident = parsed.entry, parsed.ident
    fires_ms, offset, target, _body = entry
    first, rolls = None, False
    if isinstance(parsed, Scheduled):
        first, rolls = parsed.first, parsed.rolls
    key, _headers = as_ingested(delivery_of(entry))
    proofs = proofs_of(key, ident)
    first = offset if first is None else first
    return _Pending(offset, first, (fires_ms, offset), target, parsed.due_ms, ident, rolls, proofs)


def _unproven(recall: Recall, otherwise: str) -> str:
    """Return why an unproven recall missed, or `otherwise` if the recall needs no proof."""
    if recall.known is None:
        return otherwise
    return NOT_PROVEN if recall.proofs else NO_PROOF


def _missed(at: int, why: str) -> Outcome:
    return Outcome(at, MISSED, None, None, why)
