"""How much more may wait in a shard now, by the rules for admission."""

from typing import Final, Protocol

from proxy.scheduling.admission_rules import AdmissionRules, Room, Waiting
from storage.store import Store, TargetCounts

NEAR_RECORDS: Final = 2048
"""So near to a limit it is looked at more closely what is due by now: as many records are taken
together."""


class Waits(Protocol):
    """What waits in a shard, as `Shard` says it."""

    store: Store

    @property
    def undecided(self) -> int: ...
    def pending(self) -> int: ...
    def pending_by_target(self) -> TargetCounts: ...


def room_left(rules: AdmissionRules, shard: Waits, now_ms: int, *, is_ready: bool) -> Room | None:
    """None: as much as there is. What is due by now takes no room. Undecided half messages do, but
    no bytes, since the store has none of them.

    How much of a target is due by now is not known. So its limit does not count while the shard
    catches up, when nothing fires.
    """
    if not rules:
        return None
    by_target = bytes_by_target = None
    if is_ready:
        by_target = shard.pending_by_target() if rules.records.is_by_target else None
        bytes_by_target = (
            shard.store.pending_bytes_by_target() if rules.sizes.is_by_target else None
        )
    records, size_bytes = _not_due(rules, shard, now_ms)
    return Room(rules, Waiting(records, by_target), Waiting(size_bytes, bytes_by_target))


def _not_due(rules: AdmissionRules, shard: Waits, now_ms: int) -> tuple[int, int]:
    """How many records wait beyond now, and about how many bytes; looked at more closely only where
    a limit is near."""
    store = shard.store
    records, size_bytes = shard.pending() + shard.undecided, store.pending_bytes()
    is_near = records + NEAR_RECORDS > rules.records.in_all or 2 * size_bytes > rules.sizes.in_all
    if not is_near or store.next_due_ms(now_ms) is None:
        return records, size_bytes
    due, stored = store.pending_by_time([now_ms])[0], store.pending()
    return records - due, size_bytes - size_bytes * due // max(stored, 1)
