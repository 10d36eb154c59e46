"""Keeps what the shards of a worker have in memory within its shares (setting `memory`), and gives
back to the system what is free.

Nothing is counted record by record: each turn asks the shards what they hold.
"""

import ctypes
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from proxy.config.machine import MemoryShares
from proxy.publishing.throttling import UNBOUNDED
from proxy.scheduling.batch import Plan
from proxy.scheduling.shard import Shard, SweepLimits

CALM_FOR_S: Final = 4.0
FEW_RECORDS: Final = 1_000
"""Read within that time: else it will be needed again at once."""
TRIMS: Final = 8
"""By then what was in memory is written to disk, which frees most."""


class Held(NamedTuple):
    """What resting shards have in memory: entries that are not on disk, and bodies peeked at."""

    memtable_bytes: int
    peeked_bytes: int


class MemoryBudget:
    """One worker's. `used_bytes`: what its shards held at the last look. `is_exceeded`: nothing is
    to be fetched; that ends by itself, since what is committed can be written out, and what waits
    for its turn to end does, without any fetch.
    """

    def __init__(self, shares: MemoryShares) -> None:
        self._shares = shares
        self.used_bytes = 0
        self.is_exceeded = False

    def look(
        self, shards: Mapping[int, Shard], awake: Collection[Shard], resting: Held
    ) -> int | None:
        """Count; where it is too much, have the heaviest shard of all write out its memtables: the
        partition, which is to be kept awake for that.

        One after the other: each is written in steps that fall between transactions.
        """
        kept_bytes = sum(shard.memtable_bytes + shard.waiting_bytes for shard in awake)
        on_their_way = sum(shard.ending_bytes + shard.store.peeked_bytes for shard in awake)
        kept_bytes += resting.memtable_bytes
        self.used_bytes = kept_bytes + on_their_way + resting.peeked_bytes
        most_bytes = self._shares.memtables if self.is_exceeded else self._shares.most_memtables
        self.is_exceeded = kept_bytes > most_bytes
        if kept_bytes <= self._shares.memtables:
            return None
        heaviest = max(shards, key=lambda partition: shards[partition].memtable_bytes)
        shards[heaviest].request_flush()
        return heaviest

    def left_bytes(self, awake: Collection[Shard], most_bytes: int = UNBOUNDED) -> int:
        """What the next transaction may hold beside the records that end with it in any case.

        most_bytes: bounds the transaction beside its share.
        """
        most_bytes = min(self._shares.transaction, most_bytes)
        return most_bytes - sum(shard.ending_bytes for shard in awake)

    def for_transaction(
        self, awake: Collection[Shard], resting: Held, most_bytes: int = UNBOUNDED
    ) -> "TransactionBytes":
        """To plan the next transaction with."""
        peeked_bytes = resting.peeked_bytes + sum(shard.store.peeked_bytes for shard in awake)
        left_bytes = self.left_bytes(awake, most_bytes)
        return TransactionBytes(self._shares.transaction, left_bytes, peeked_bytes)


class TransactionBytes:
    """Divides the bodies of one transaction, `most_bytes`, among shards that are planned in turn.

    No more is peeked at once all shards together have peeked at so much. What a shard has in memory
    already may always go: who looks at its store for another reason may have peeked at more.
    """

    def __init__(self, most_bytes: int, left_bytes: int, peeked_bytes: int) -> None:
        self._most_bytes, self._left_bytes = most_bytes, left_bytes
        self._peeked_bytes = peeked_bytes

    def plan(self, shard: Shard, now_ms: int, max_records: int, sweep: SweepLimits) -> Plan:
        """The shard's plan, with as much as is left for it: perhaps nothing that pends."""
        peeked_bytes = shard.store.peeked_bytes
        unpeeked_bytes = max(0, self._most_bytes - self._peeked_bytes)
        max_bytes = min(self._left_bytes, peeked_bytes + unpeeked_bytes)
        plan = shard.plan(now_ms, max_records, max_bytes, sweep)
        self._left_bytes -= plan.pending_bytes
        self._peeked_bytes += shard.store.peeked_bytes - peeked_bytes
        return plan


def _trim() -> None:
    """Only glibc keeps much, and only it has this."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreedMemory:
    """When things have become calm, a few times: loading millions leaves tens of MB so. To give
    them back takes some 10 ms."""

    def __init__(self, trim: Callable[[], None] = _trim) -> None:
        self._trim = trim
        self._next_look_s = 0.0
        self._read_to = self._calm_looks = 0

    def look(self, now_s: float, read_to: int, *, is_busy: bool) -> None:
        """read_to: the offsets read, added up over the partitions. is_busy: many are delivered."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + CALM_FOR_S
        is_calm = not is_busy and read_to - self._read_to < FEW_RECORDS
        self._calm_looks = self._calm_looks + 1 if is_calm else 0
        self._read_to = read_to
        if 0 < self._calm_looks <= TRIMS:
            self._trim()
