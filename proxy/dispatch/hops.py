"""Hops: records that the proxy rewrites to the ingress (docs/exactly-once.md, rule 10)."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.protocol import headers as names
from proxy.protocol.body import Delivery, IngressPartition, Message, delivery_of
from proxy.protocol.outcomes import Outcome, as_ingested
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.proofs import receipt_name
from proxy.scheduling.batch import Hop, NotBefore, OutgoingRecord, RecordRef, auxiliary_ref
from proxy.scheduling.pending import ENDED, RecordState, find_record
from proxy.scheduling.shard import Shard

NOT_CARRIED_ON: Final = names.HOPS | {
    names.DELIVER_AT,
    names.DELAY,
    names.LEVEL,
    names.TRANSACTION,
    names.CHECK_TOPIC,
    names.CHECK_IMMUNITY,
    names.FIRST_ORIGIN,
}
"""Headers that the successor sets anew or drops. Without `timer-transaction` a committed half
message becomes an ordinary record."""


def successor(ingress: IngressPartition, hop: Hop) -> OutgoingRecord:
    """Return the rewritten record, with the partition and key of the old ingress record."""
    delivery = hop.delivery
    not_before_ms, resumed_ms = hop.not_before_ms, hop.resumed_ms
    if not_before_ms is None:
        not_before_ms = _number(delivery.header(names.HOP_NOT_BEFORE))
        resumed_ms = _number(delivery.header(names.HOP_RESUMED))
    numbers = {
        names.DELIVER_AT: delivery.due_ms,
        names.HOP_NOT_BEFORE: not_before_ms,
        names.HOP_RESUMED: resumed_ms,
        names.HOP_ATTEMPT: hop.failures or _number(delivery.header(names.HOP_ATTEMPT)),
    }
    return _rewritten(ingress, delivery, numbers, (ingress.prefix, delivery.offset))


def moved(
    ingress: IngressPartition,
    delivery: Delivery,
    deliver_at_ms: int,
    not_before: NotBefore | None = None,
) -> OutgoingRecord:
    """Return the move of a pending record, with another due or not-before time."""
    numbers = {
        names.DELIVER_AT: deliver_at_ms,
        names.HOP_NOT_BEFORE: not_before and not_before.not_before_ms,
        names.HOP_RESUMED: not_before and not_before.resumed_ms,
        names.HOP_ATTEMPT: _number(delivery.header(names.HOP_ATTEMPT)),
        names.HOP_FIRES: delivery.fires_ms,
        names.HOP_DUE: delivery.due_ms,
    }
    ref = auxiliary_ref(ingress, ingress.topic, delivery.offset)
    return _rewritten(ingress, delivery, numbers, ref)


def is_move(record: OutgoingRecord) -> bool:
    """Return whether `moved` made the record."""
    return any(name == names.HOP_FIRES for name, _ in record.headers)


def _rewritten(
    ingress: IngressPartition,
    delivery: Delivery,
    numbers: Mapping[str, int | None],
    ref: RecordRef,
) -> OutgoingRecord:
    key, headers = as_ingested(delivery)
    kept = [header for header in headers if header[0] not in NOT_CARRIED_ON]
    first = delivery.header(names.FIRST_ORIGIN) or ingress.origin(delivery.offset).encode()
    numbers = {
        **numbers,
        names.HOP_FROM: delivery.entry_offset,
        names.HOP_FIRST: _first_offset(delivery),
    }
    added = [(name, str(n).encode()) for name, n in numbers.items() if n is not None]
    headers = [*kept, *added, (names.FIRST_ORIGIN, first)]
    return OutgoingRecord(ingress.topic, delivery.value, key, ingress.number, headers, ref)


def named_hop(hop: Hop) -> tuple[bytes, int]:
    """Return the name under which the shard awaits the successor, and the old entry's offset."""
    delivery = hop.delivery
    return delivery.header(names.ID) or receipt_name(_first_offset(delivery)), delivery.entry_offset


def outcome_of(hop: Hop) -> Outcome:
    """Return the outcome of the record that the successor continues."""
    delivery, ident = hop.delivery, hop.delivery.header(names.ID)
    return Outcome(delivery.offset, hop.what, delivery.due_ms, ident, hop.detail)


def _first_offset(delivery: Delivery) -> int:
    first = _number(delivery.header(names.HOP_FIRST))
    return delivery.offset if first is None else first


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


# A pending record with a new delivery time (docs/exactly-once.md#moved-records).

MovingState: TypeAlias = RecordState | Literal["not-committed", "target-refused"]
NOT_COMMITTED: Final[MovingState] = "not-committed"
"""The record's ingestion is not committed. If the worker dies, the record is read again, perhaps by
another policy."""
TARGET_REFUSED: Final[MovingState] = "target-refused"
"""The present settings would make a dead letter of the move."""


class Moving(NamedTuple):
    """Whether a record can be moved, and the move that replaces the record."""

    state: MovingState
    at: int
    """Offset of the record's newest successor, or the record's own offset. If there is a successor,
    ask again with the record at this offset."""
    record: OutgoingRecord | None = None
    """The move, if the record is pending."""


def find_moving(shard: Shard, message: Message, deliver_at_ms: int) -> Moving:
    """Return whether an ingested record of the shard can be moved, and the move."""
    offset = message.offset()
    known = shard.named(receipt_name(offset))
    if known is not None and known.offset > offset:
        return Moving(ENDED, known.offset)
    found, parsed = find_record(shard, message), shard.parsed(message)
    if found.state != "pending" or not isinstance(parsed, Scheduled | Prepare):
        return Moving(found.state, offset)
    delivery = delivery_of(parsed.entry)
    row = None if parsed.ident is None else shard.named(parsed.ident)
    if row is not None:
        delivery = delivery._replace(fires_ms=row.fires_ms, entry_offset=row.offset)
    if delivery.entry_offset >= shard.position.next_offset:
        return Moving(NOT_COMMITTED, offset)
    refusal = shard.refusal_now(message)
    if refusal is not None and refusal.code == TARGET_REFUSED:
        return Moving(TARGET_REFUSED, offset)
    return Moving(found.state, offset, moved(shard.ingress, delivery, deliver_at_ms))
