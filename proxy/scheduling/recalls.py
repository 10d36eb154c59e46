"""Takes records back by their receipts (docs/exactly-once.md#recalls).

A receipt is the origin that a producer was told. What waits for a record is found by reading that
again from the ingress: what is still needed has not been deleted there, and is read as before.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.records.delivery import delivery_of
from proxy.records.outcome import APPLIED, CANCELLED, MISSED, Outcome, as_ingested
from proxy.records.receipts import proofs_of, receipt_name
from proxy.requests.parsed import ParsedRecord, Prepare, Recall, Scheduled
from proxy.scheduling.half_messages import ReadBack
from proxy.scheduling.identities import IS_CANCEL, Identities
from proxy.scheduling.missed_moves import MissedMoves
from storage.register import NOTHING, Key
from storage.store import Entry

MOST_READ: Final = 32
"""Records that are read again for one transaction."""
RECALLED: Final = "recalled"
IS_OVER: Final = "it had ended before"
NEVER_WAITED: Final = "nothing that could wait lies there"
NO_PROOF: Final = (
    "it has neither a key nor a timer-id: give it the key that the record has in the ingress, or "
    "the record's timer-id. Without these an operator can recall it through the admin API"
)
NOT_PROVEN: Final = (
    "nothing waits there that has the recall's key or timer-id: it has ended, or has another key "
    "in the ingress and another id"
)
"""The same text for each wrong proof, so that it tells nothing about the record."""


class _Waiting(NamedTuple):
    """What a record asked for that may wait; `first`: the offset that its producer wrote it at."""

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
        self._read: dict[int, _Waiting | None] = {}

    def expect(self, offsets: Iterable[int]) -> None:
        """Recalls of these come next, in this order: what they name is read again some at a time,
        a replay's too."""
        self._next, self._read = deque(offsets), {}

    def apply(self, at: int, recall: Recall) -> list[Outcome]:
        """Apply the recall at `at`; return the outcomes of all that it ends, and its own."""
        current = self._current(recall.offset)
        if current is None:
            self._identities.note_recall(at, *recall.names)
            return [_missed(at, _unproven(recall, IS_OVER))]
        found = self._waiting(current)
        if found is None or not recall.is_proven_by(found.proofs):
            return [_missed(at, _unproven(recall, NEVER_WAITED))]
        return self._take_back(at, recall.offset, found)

    def _take_back(self, at: int, offset: int, found: _Waiting) -> list[Outcome]:
        chain = self._identities.known(receipt_name(found.first))
        if chain.latest != NOTHING and chain.offset != found.offset:
            return [_missed(at, IS_OVER)]
        ended = self._end(at, found)
        self._identities.note_recall(at, receipt_name(found.first))
        if not ended and offset != found.first:
            self._identities.keep_readable(at, offset)
        if ended is None:
            return [_missed(at, IS_OVER)]
        return [*ended, Outcome(at, APPLIED, None, None)]

    def _end(self, at: int, found: _Waiting) -> list[Outcome] | None:
        """What is ended: nothing where the record is in mid-hop, and ends as it arrives; None where
        it had ended before, as far as is known."""
        ids = self._identities
        if found.ident is not None:
            return ids.recall_named(at, found.ident, found.offset)
        if ids.is_purged(found.offset, found.target, found.due_ms):
            return None
        if found.key > ids.position.ended_upto(found.offset):
            ids.take_back(at, found.key, found.target)
            return [
                Outcome(found.offset, CANCELLED, found.due_ms, None, RECALLED, None, found.target)
            ]
        is_hopping = found.rolls or ids.hops(receipt_name(found.first), found.offset)
        return [] if is_hopping else None

    def _current(self, offset: int) -> int | None:
        """Where the record is now that was written at `offset`; None where it has ended. A replay
        may not be able to read it again any more: that it was recalled is noted by the origin."""
        row = self._identities.known(receipt_name(offset))
        if row.kind & IS_CANCEL:
            return None
        current = offset if row.offset == NOTHING else row.offset
        return None if current < self._identities.position.floor else current

    def _waiting(self, offset: int) -> _Waiting | None:
        if offset not in self._read:
            count = min(MOST_READ, len(self._next))
            current = [self._current(self._next.popleft()) for _ in range(count)]
            offsets = sorted({offset, *(one for one in current if one is not None)})
            parsed = self._read_back(offsets)
            self._read |= {one: _waiting(parsed.get(one)) for one in offsets}
        return None if offset in self._missed else self._read[offset]


def _waiting(parsed: ParsedRecord | None) -> _Waiting | None:
    match parsed:
        case Scheduled(entry, ident, _, due_ms, rolls, first):
            return _waiting_entry(entry, first, due_ms, ident, rolls=rolls)
        case Prepare(ident, entry, due_ms):
            return _waiting_entry(entry, None, due_ms, ident, rolls=False)
    return None


def _waiting_entry(
    entry: Entry, first: int | None, due_ms: int, ident: bytes | None, *, rolls: bool
) -> _Waiting:
    fires_ms, offset, target, _ = entry
    key, _ = as_ingested(delivery_of(entry))
    first, proofs = offset if first is None else first, proofs_of(key, ident)
    return _Waiting(offset, first, (fires_ms, offset), target, due_ms, ident, rolls, proofs)


def _unproven(recall: Recall, otherwise: str) -> str:
    """Return why an unproven recall missed, or `otherwise` if it needs no proof."""
    if recall.known is None:
        return otherwise
    return NOT_PROVEN if recall.proofs else NO_PROOF


def _missed(at: int, why: str) -> Outcome:
    return Outcome(at, MISSED, None, None, why)
