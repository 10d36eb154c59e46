"""Look-ups of pending records in a shard: one record, or a list in pieces."""

from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.protocol.body import Delivery, Message, body_bytes, delivery_of, is_stub
from proxy.protocol.headers import HOP_ATTEMPT, ID
from proxy.protocol.parsed import Cancel, Decision, Prepare, Scheduled
from proxy.protocol.position import NEVER_MS
from proxy.protocol.proofs import receipt_name
from proxy.scheduling.identities import IS_CANCEL, IS_HALF_MESSAGE
from proxy.scheduling.shard import Shard
from storage.store import LAST_OFFSET, NOTHING, Entry, Key, Named, Wants

RecordState: TypeAlias = Literal["pending", "half-message", "ended"]
ENDED: Final[RecordState] = "ended"


class Found(NamedTuple):
    """A record, and its state in the shard."""

    origin: str
    ident: bytes | None
    state: RecordState
    target: str | None = None
    due_ms: int | None = None
    """The due. None: the record has no due, or its due cannot be read."""
    fires_ms: int | None = None
    """The time at which the record's entry fires. None unless the record is pending."""


def find_id(shard: Shard, ident: bytes) -> Found | None:
    """Return the pending record or half message with this id."""
    row = shard.named(ident)
    state = None if row is None else _state_of(shard, row)
    if row is None or state is None:
        return None
    fires_ms = None if state == "half-message" else row.fires_ms
    origin = shard.ingress.origin(row.origin)
    return Found(origin, ident, state, row.target, row.due_ms, fires_ms)


def find_record(shard: Shard, message: Message) -> Found:
    """Return the state of a record that the shard has ingested."""
    offset = message.offset()
    origin = shard.ingress.origin(offset)
    parsed = shard.parsed(message)
    ident = None
    if isinstance(parsed, Scheduled | Prepare | Cancel | Decision):
        ident = parsed.ident
    if not isinstance(parsed, Scheduled | Prepare) or offset in shard.missed:
        return Found(origin, ident, ENDED)
    entry = parsed.entry
    row = None if ident is None else shard.named(ident)
    state: RecordState | None = None
    if ident is None:
        state = _state_of_entry(shard, entry, parsed)
    elif row is not None and offset in (row.offset, row.origin):
        state = _state_of(shard, row)  # only the last record with an id can still be pending
    fires_ms = None
    if state == "pending":
        fires_ms = entry[0] if row is None else row.fires_ms
    return Found(origin, ident, state or ENDED, entry[2], parsed.due_ms, fires_ms)


def _state_of(shard: Shard, row: Named) -> RecordState | None:
    if row.kind & IS_HALF_MESSAGE:
        return "half-message"
    is_pending = row.offset != NOTHING and row.key > shard.position.ended_upto(row.offset)
    is_pending = is_pending and not shard.is_purged(row.offset, row.target, row.due_ms)
    return "pending" if is_pending else None


def _state_of_entry(shard: Shard, entry: Entry, parsed: Scheduled | Prepare) -> RecordState:
    """Return the state of a record without an id. The register notes a recall under the record's
    receipt."""
    first = parsed.first if isinstance(parsed, Scheduled) else None
    recall = shard.named(receipt_name(entry[1] if first is None else first))
    if recall is not None and recall.kind & IS_CANCEL:
        return ENDED
    if shard.is_purged(entry[1], entry[2], parsed.due_ms):
        return ENDED
    return "pending" if entry[:2] > shard.position.ended_upto(entry[1]) else ENDED


LOOKED_AT: Final = 128
"""A piece is made from at most this many entries or half messages, in a millisecond or two."""
LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
END: Final[Key] = (NEVER_MS, LAST_OFFSET)
"""A key beyond all records. Undecided half messages come last, with keys (NEVER_MS, offset)."""

Reason: TypeAlias = Literal[
    "scheduled", "rate-limited", "paused", "requeued", "undecided", "unread"
]


class Sought(NamedTuple):
    """The records that a listing asks for."""

    pattern: str = ""
    """Pattern of targets. Empty: any."""
    from_ms: int = 0
    until_ms: int = NEVER_MS - 1
    """Range of fire times. Half messages are found by their dues."""
    ident_prefix: bytes = b""

    @property
    def wants(self) -> Wants:
        """A test whether a target fits `pattern`. None: all targets fit."""
        pattern = self.pattern
        return cache(lambda target: fnmatchcase(target, pattern)) if pattern else None


class PendingRecord(NamedTuple):
    """A pending record. If its body is only in Kafka, `why` is `unread` and the id is unknown."""

    fires_ms: int
    offset: int
    """(fires_ms, offset) is the record's place in the list."""
    origin: str
    """Origin of the ingress record to deliver. For a committed half message, `offset` is the offset
    of the commit."""
    ident: bytes | None
    due_ms: int
    target: str
    size_bytes: int | None
    why: Reason
    attempt: int = 0


class PendingPiece(NamedTuple):
    """Records of a partition in order. `upto`: the piece is complete up to this key."""

    partition: int
    records: list[PendingRecord]
    upto: Key


def scan_pending(shard: Shard, sought: Sought, after: Key, most: int | None = None) -> PendingPiece:
    """Return the next piece beyond `after`, of at most `most` records."""
    partition = shard.ingress.number
    most = LOOKED_AT if most is None or sought.ident_prefix else min(most, LOOKED_AT)
    if after >= (sought.until_ms, LAST_OFFSET):
        return PendingPiece(partition, *_undecided(shard, sought, after))
    found, upto = shard.scan(after, sought.until_ms, sought.wants, most, LOOKED_AT_BYTES)
    described = (_described(shard, entry) for entry in found)
    records = [r for r in described if not shard.is_purged(r.offset, r.target, r.due_ms)]
    return PendingPiece(partition, [r for r in records if _fits(r, sought)], upto)


def _fits(record: PendingRecord, sought: Sought) -> bool:
    return not sought.ident_prefix or (record.ident or b"").startswith(sought.ident_prefix)


def _described(shard: Shard, entry: Entry) -> PendingRecord:
    fires_ms, offset, target, body = entry
    size_bytes = body_bytes(body)
    if is_stub(body):
        origin = shard.ingress.origin(offset)
        return PendingRecord(fires_ms, offset, origin, None, fires_ms, target, size_bytes, "unread")
    delivery = delivery_of(entry)
    attempt = int(delivery.header(HOP_ATTEMPT) or 0)
    return PendingRecord(
        fires_ms,
        offset,
        shard.ingress.origin(delivery.offset),
        delivery.header(ID),
        delivery.due_ms,
        target,
        size_bytes,
        _reason(delivery, attempt),
        attempt,
    )


def _reason(delivery: Delivery, attempt: int) -> Reason:
    if delivery.wanted_ms <= delivery.due_ms:
        return "scheduled"
    if delivery.is_paused:
        return "paused"
    return "requeued" if attempt else "rate-limited"


def _undecided(shard: Shard, sought: Sought, after: Key) -> tuple[list[PendingRecord], Key]:
    offset = after[1] if after[0] >= NEVER_MS else -1
    found = shard.half_messages.beyond(offset, LOOKED_AT)
    rows = shard.register.find(ident for _, ident, _ in found)
    records = [
        PendingRecord(
            NEVER_MS,
            offset,
            shard.ingress.origin(offset),
            ident,
            rows[ident].due_ms,
            rows[ident].target,
            size_bytes,
            "undecided",
        )
        for offset, ident, size_bytes in found
        if ident in rows
    ]
    records = [
        record
        for record in records
        if sought.from_ms <= record.due_ms <= sought.until_ms
        and (sought.wants is None or sought.wants(record.target))
        and _fits(record, sought)
    ]
    return records, END if len(found) < LOOKED_AT else (NEVER_MS, found[-1][0])
