"""What waits in a shard, for people to look at: in order, one bounded piece at a time."""

from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.records.body import body_bytes, is_stub
from proxy.records.delivery import Delivery, delivery_of
from proxy.records.headers import HOP_ATTEMPT, ID
from proxy.records.position import NEVER_MS
from proxy.scheduling.shard import Shard
from storage.store import LAST_OFFSET, Entry, Key, Wants

LOOKED_AT: Final = 128
"""Entries, or half messages, in one piece: a millisecond or two."""
LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
END: Final[Key] = (NEVER_MS, LAST_OFFSET)
"""Beyond everything that waits. Undecided half messages come last, by their offsets."""

Reason: TypeAlias = Literal["scheduled", "held-back", "paused", "requeued", "undecided", "unread"]


class Sought(NamedTuple):
    """Which records are asked for. pattern: of targets; from_ms, until_ms: when they fire, of half
    messages their due; ident_prefix: what their ids begin with. Empty, or None: any."""

    pattern: str = ""
    from_ms: int = 0
    until_ms: int = NEVER_MS - 1
    ident_prefix: bytes = b""

    @property
    def wants(self) -> Wants:
        """Whether a target fits."""
        pattern = self.pattern
        return cache(lambda target: fnmatchcase(target, pattern)) if pattern else None


class WaitingRecord(NamedTuple):
    """A record that waits. (fires_ms, offset): its place in the order; origin: where the ingress
    record lies that is to be delivered; attempt: how often publishing it has failed.

    Of one whose body is left in Kafka (`unread`) no more is known than its due by the schedule."""

    fires_ms: int
    offset: int
    origin: str
    ident: bytes | None
    due_ms: int
    target: str
    size_bytes: int | None
    why: Reason
    attempt: int = 0


class WaitingPiece(NamedTuple):
    """Records of a partition in order, and up to which place there are no others; END for all."""

    partition: int
    records: list[WaitingRecord]
    upto: Key


def scan_waiting(shard: Shard, sought: Sought, after: Key, most: int | None = None) -> WaitingPiece:
    """The next piece beyond `after`, where the last one has ended; of `most` records, if no more
    are wanted than that."""
    partition = shard.ingress.number
    most = LOOKED_AT if most is None or sought.ident_prefix else min(most, LOOKED_AT)
    if after >= (sought.until_ms, LAST_OFFSET):
        return WaitingPiece(partition, *_undecided(shard, sought, after))
    found, upto = shard.scan(after, sought.until_ms, sought.wants, most, LOOKED_AT_BYTES)
    described = (_described(shard, entry) for entry in found)
    records = [r for r in described if not shard.is_purged(r.offset, r.target, r.due_ms)]
    return WaitingPiece(partition, [r for r in records if _fits(r, sought)], upto)


def _fits(record: WaitingRecord, sought: Sought) -> bool:
    return not sought.ident_prefix or (record.ident or b"").startswith(sought.ident_prefix)


def _described(shard: Shard, entry: Entry) -> WaitingRecord:
    fires_ms, offset, target, body = entry
    size_bytes = body_bytes(body)
    if is_stub(body):
        origin = shard.ingress.origin(offset)
        return WaitingRecord(fires_ms, offset, origin, None, fires_ms, target, size_bytes, "unread")
    delivery = delivery_of(entry)
    attempt = int(delivery.header(HOP_ATTEMPT) or 0)
    return WaitingRecord(
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
    if delivery.is_parked:
        return "paused"
    return "requeued" if attempt else "held-back"


def _undecided(shard: Shard, sought: Sought, after: Key) -> tuple[list[WaitingRecord], Key]:
    offset = after[1] if after[0] >= NEVER_MS else -1
    found = shard.undecided_beyond(offset, LOOKED_AT)
    wants = sought.wants
    records = [
        WaitingRecord(
            NEVER_MS,
            half.offset,
            shard.ingress.origin(half.offset),
            half.ident,
            half.due_ms,
            half.target,
            half.size_bytes,
            "undecided",
        )
        for half in found
        if sought.from_ms <= half.due_ms <= sought.until_ms
        if wants is None or wants(half.target)
    ]
    upto = END if len(found) < LOOKED_AT else (NEVER_MS, found[-1].offset)
    return [record for record in records if _fits(record, sought)], upto
