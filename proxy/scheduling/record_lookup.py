"""What has become of a record so far, as its shard knows: by id, or by its offset."""

from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.records.message import Message
from proxy.records.receipts import receipt_name
from proxy.records.rejection import Rejection
from proxy.requests.parsed import ParsedRecord, Prepare, Purge, Recall, RejectedHop, Scheduled
from proxy.scheduling.identities import IS_CANCEL, IS_HALF_MESSAGE
from proxy.scheduling.shard import Shard
from storage.register import NOTHING, Named
from storage.store import Entry

RecordState: TypeAlias = Literal["pending", "half-message", "ended"]
ENDED: Final[RecordState] = "ended"


class Found(NamedTuple):
    """A record by its origin, and what is known of it. due_ms: what it asks for, fires_ms: when the
    proxy looks at it next; both None for one that has no time, or had none that could be read."""

    origin: str
    ident: bytes | None
    state: RecordState
    target: str | None = None
    due_ms: int | None = None
    fires_ms: int | None = None


def find_id(shard: Shard, ident: bytes) -> Found | None:
    """What pends with this id, or waits as a half message; None where nothing does."""
    row = shard.named(ident)
    state = None if row is None else _state_of(shard, row)
    if row is None or state is None:
        return None
    fires_ms = None if state == "half-message" else row.fires_ms
    origin = shard.ingress.origin(row.origin)
    return Found(origin, ident, state, row.target, row.due_ms, fires_ms)


def find_record(shard: Shard, message: Message) -> Found:
    """What has become of this ingress record of the shard's partition, which it has ingested."""
    offset = message.offset()
    origin = shard.ingress.origin(offset)
    parsed = shard.parsed(message)
    ident = _ident(parsed)
    if not isinstance(parsed, Scheduled | Prepare) or shard.has_missed(offset):
        return Found(origin, ident, ENDED)
    entry = parsed.entry
    row = None if ident is None else shard.named(ident)
    state = _of_entry(shard, entry, parsed) if ident is None else _of_named(shard, offset, row)
    fires_ms = entry[0] if row is None or state != "pending" else row.fires_ms
    is_waiting = state == "pending"
    return Found(origin, ident, state, entry[2], parsed.due_ms, fires_ms if is_waiting else None)


def _state_of(shard: Shard, row: Named) -> RecordState | None:
    if row.kind & IS_HALF_MESSAGE:
        return "half-message"
    is_pending = row.offset != NOTHING and row.key > shard.position.ended_upto(row.offset)
    is_pending = is_pending and not shard.is_purged(row.offset, row.target, row.due_ms)
    return "pending" if is_pending else None


def _of_entry(shard: Shard, entry: Entry, parsed: Scheduled | Prepare) -> RecordState:
    """One without an id may have been recalled."""
    first = parsed.first if isinstance(parsed, Scheduled) else None
    recall = shard.named(receipt_name(entry[1] if first is None else first))
    if recall is not None and recall.kind & IS_CANCEL:
        return ENDED
    if shard.is_purged(entry[1], entry[2], parsed.due_ms):
        return ENDED
    return "pending" if entry[:2] > shard.position.ended_upto(entry[1]) else ENDED


def _of_named(shard: Shard, offset: int, row: Named | None) -> RecordState:
    """Only the last record with an id can still wait."""
    if row is None or offset not in (row.offset, row.origin):
        return ENDED
    return _state_of(shard, row) or ENDED


def _ident(parsed: ParsedRecord) -> bytes | None:
    return None if isinstance(parsed, RejectedHop | Recall | Purge | Rejection) else parsed.ident
