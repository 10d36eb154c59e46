"""Which record is to take the place of one that waits, so that it is delivered at another time.

docs/exactly-once.md#moved-records.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.dispatch.hops import moved
from proxy.protocol.body import Message, delivery_of
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.proofs import receipt_name
from proxy.scheduling.batch import AuxiliaryRecord
from proxy.scheduling.pending import ENDED, RecordState, find_record
from proxy.scheduling.shard import Shard

MovingState: TypeAlias = RecordState | Literal["not-committed", "target-refused"]
NOT_COMMITTED: Final[MovingState] = "not-committed"
"""It was read, and is read again if the worker dies now: perhaps by other settings."""
TARGET_REFUSED: Final[MovingState] = "target-refused"
"""The settings of now would make a dead letter of the move."""


class Moving(NamedTuple):
    """state: of the record asked about. at: offset of what was rewritten from it, or its own: that
    is to be asked about. record: takes the place of it, where it is `pending`."""

    state: MovingState
    at: int
    record: AuxiliaryRecord | None = None


def find_moving(shard: Shard, message: Message, deliver_at_ms: int) -> Moving:
    """For this ingress record of the shard's partition, which it has ingested."""
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
