"""Faults that can be planted in the proxy, to show that the simulation finds them.

The proxy once had the first two.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import ANY, patch

from proxy.dispatch.hops import NOT_COMMITTED, Moving, find_moving, moved
from proxy.kafka.ingress import Ingress
from proxy.protocol.body import Message, delivery_of
from proxy.protocol.outcomes import CANCELLED, Outcome
from proxy.protocol.parsed import Scheduled
from proxy.scheduling.identities import IS_CANCEL, Identities
from proxy.scheduling.missed_moves import MissedMoves
from proxy.scheduling.shard import Shard, State
from storage.store import Named
from tests.support.simulation import world


def _recall_named(ids: Identities, offset: int, ident: bytes, record: int) -> list[Outcome] | None:
    row = ids.known(ident)
    if record not in (row.offset, row.origin):
        return None
    ended, found = ids._supersede(offset, ident, row, CANCELLED)
    if not found:
        return None
    ids._put(offset, ident, Named(offset, kind=IS_CANCEL))
    return ended


def _find_moving(shard: Shard, message: Message, deliver_at_ms: int) -> Moving:
    found = find_moving(shard, message, deliver_at_ms)
    parsed = shard.parsed(message)
    if found.state != NOT_COMMITTED or not isinstance(parsed, Scheduled):
        return found
    record = moved(shard.ingress, delivery_of(parsed.entry), deliver_at_ms)
    return Moving("pending", found.at, record)


def _lowest(ids: Identities, floor: int) -> int:
    firsts = ids._half_messages.first_offset, ids._purges.first_unswept
    return min([floor, *(one for one in firsts if one is not None)])


def _state(shard: Shard) -> State:
    is_replaying = shard.next_offset < shard.position.next_offset
    return State.REPLAYING if is_replaying else State.READY


PLANTED: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    # Recalling a replacement takes back a replaced record in mid-hop.
    "recall": lambda: patch.object(Identities, "recall_named", _recall_named),
    # A record is moved before its reading is committed.
    "move": lambda: patch.object(world, "find_moving", _find_moving),
    # The floor passes records in mid-hop.
    "floor": lambda: patch.object(Identities, "lowest", _lowest),
    # Every generation of the group may commit offsets.
    "generation": lambda: patch.object(Ingress, "group_metadata", lambda _: ANY),
    # A shard fires during a take-over, before it has read to the end.
    "catching up": lambda: patch.object(Shard, "_state_now", _state),
    # A replay lets missed moves take their place.
    "missed": lambda: patch.object(MissedMoves, "without", lambda _, messages: messages),
}
"""Faults by name."""
