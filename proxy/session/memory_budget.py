"""Keeps what the shards of a worker have in memory within its shares (setting `memory`).

Nothing is counted record by record: each turn asks the shards what they hold.
"""

from collections.abc import Collection
from operator import attrgetter
from typing import NamedTuple

from proxy.config.memory_shares import MemoryShares
from proxy.scheduling.batch import Plan
from proxy.scheduling.shard import Shard
from proxy.scheduling.sweep import SweepLimits

_memtable_bytes = attrgetter("memtable_bytes")


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

    def look(self, shards: Collection[Shard], awake: Collection[Shard], resting: Held) -> None:
        """Count; where it is too much, have the heaviest shard of all write out its memtables.

        One after the other: each is written in steps that fall between transactions.
        """
        kept_bytes = sum(shard.memtable_bytes + shard.waiting_bytes for shard in awake)
        on_their_way = sum(shard.ending_bytes + shard.store.peeked_bytes for shard in awake)
        kept_bytes += resting.memtable_bytes
        self.used_bytes = kept_bytes + on_their_way + resting.peeked_bytes
        most_bytes = self._shares.memtables if self.is_exceeded else self._shares.most_memtables
        self.is_exceeded = kept_bytes > most_bytes
        if kept_bytes > self._shares.memtables:
            max(shards, key=_memtable_bytes).request_flush()

    def left_bytes(self, awake: Collection[Shard]) -> int:
        """What the next transaction may hold beside the records that end with it in any case."""
        return self._shares.transaction - sum(shard.ending_bytes for shard in awake)

    def for_transaction(self, awake: Collection[Shard], resting: Held) -> "TransactionBytes":
        """To plan the next transaction with."""
        peeked_bytes = resting.peeked_bytes + sum(shard.store.peeked_bytes for shard in awake)
        return TransactionBytes(self._shares.transaction, self.left_bytes(awake), peeked_bytes)


class TransactionBytes:
    """Divides the bodies of one transaction, `most_bytes`, among shards that are planned in turn.

    As much at most has been peeked at by all shards together, but for one record. So one of those
    that have peeked, or the first if none has, always has something left.
    """

    def __init__(self, most_bytes: int, left_bytes: int, peeked_bytes: int) -> None:
        self._most_bytes, self._left_bytes = most_bytes, left_bytes
        self._peeked_bytes = peeked_bytes

    def plan(self, shard: Shard, now_ms: int, max_records: int, sweep: SweepLimits) -> Plan:
        """The shard's plan, with as much as is left for it: perhaps nothing that pends."""
        peeked_bytes = shard.store.peeked_bytes
        most_peeked_bytes = self._most_bytes - (self._peeked_bytes - peeked_bytes)
        plan = shard.plan(now_ms, max_records, min(self._left_bytes, most_peeked_bytes), sweep)
        self._left_bytes -= plan.pending_bytes
        self._peeked_bytes += shard.store.peeked_bytes - peeked_bytes
        return plan
