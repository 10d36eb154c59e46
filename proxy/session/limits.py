"""Limits of a worker's shards: memory, and reasons to pause reading. Times are of the monotonic
clock, in ms."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from proxy.config.machine import DiskReserve, MemoryShares
from proxy.config.values import shown_size
from proxy.kafka.ingress import Ingress
from proxy.scheduling.batch import Plan
from proxy.scheduling.purges import SweepLimits
from proxy.scheduling.shard import Shard, State
from proxy.session.pending_limits import PendingLimits
from storage.errors import StorageFull

log = structlog.get_logger(__name__)


class MemoryBudget:
    """One worker's memory (setting `memory`). While `is_exceeded`, nothing is fetched, and writing
    committed records to disk frees memory."""

    def __init__(self, shares: MemoryShares) -> None:
        self._shares = shares
        self._kept_bytes = self._peeked_bytes = 0
        self.left_bytes = self._planned_bytes = 0
        """Bytes that the transaction may still add, and bytes of due bodies that are loaded."""
        self.used_bytes = 0
        self.is_exceeded = False

    def look(self, shard: Shard, until_ms: int) -> None:
        before = shard.view
        now = shard.look(until_ms)
        self._kept_bytes += now.kept_bytes - before.kept_bytes
        self._peeked_bytes += now.peeked_bytes - before.peeked_bytes

    def forget(self, shard: Shard) -> None:
        self._kept_bytes -= shard.view.kept_bytes
        self._peeked_bytes -= shard.view.peeked_bytes

    def judge(self, shards: Mapping[int, Shard], ending_bytes: int) -> int | None:
        """Decide whether memory is exceeded. Return a partition that must flush before it rests."""
        self.used_bytes = self._kept_bytes + self._peeked_bytes + ending_bytes
        self._planned_bytes = self._peeked_bytes
        most_bytes = self._shares.memtables if self.is_exceeded else self._shares.most_memtables
        self.is_exceeded = self._kept_bytes > most_bytes
        if self._kept_bytes <= self._shares.memtables:
            return None
        heaviest = max(shards, key=lambda partition: shards[partition].memtable_bytes)
        shards[heaviest].request_flush()
        return heaviest

    def begin(self, ending_bytes: int, most_bytes: int) -> None:
        """Begin a transaction of at most `most_bytes`, with `ending_bytes` already in it."""
        self.left_bytes = min(self._shares.transaction, most_bytes) - ending_bytes

    def plan(self, shard: Shard, now_ms: int, max_records: int, sweep: SweepLimits) -> Plan:
        """Return the shard's plan within the bytes that are left. Bodies that are already in memory
        need no more of the memory budget."""
        peeked_bytes = shard.view.peeked_bytes
        unpeeked_bytes = max(0, self._shares.transaction - self._planned_bytes)
        max_bytes = min(self.left_bytes, peeked_bytes + unpeeked_bytes)
        plan = shard.plan(now_ms, max_records, max_bytes, sweep)
        self.left_bytes -= plan.pending_bytes
        self._planned_bytes += shard.store.peeked_bytes - peeked_bytes
        return plan


FULL_RETRY_MS: Final = 1_000
LOOK_EVERY_MS: Final = 1_000
IS_HELD: Final = "local disk full: reading of the ingress is paused"


class BackPressure:
    """Pauses and resumes the partitions of `ingress`. `disk_space` returns the disk's size and free
    bytes, or raises OSError."""

    def __init__(
        self,
        ingress: Ingress,
        reserve: DiskReserve,
        disk_space: Callable[[], tuple[int, int]],
        limits: PendingLimits,
    ) -> None:
        self._ingress, self._limits = ingress, limits
        self._reserve, self._disk_space = reserve, disk_space
        self._paused: set[int] = set()
        self._full: set[int] = set()
        self._next_look_ms = self._disk_full_until_ms = 0
        """Nothing is written to a full disk before `_disk_full_until_ms`. 0: the disk had room."""
        self._was_memory_exceeded, self.has_limits = False, limits.are_set
        self.is_ingest_paused = False
        """An operator has paused reading (docs/exactly-once.md, rule 5)."""

    @property
    def is_disk_full(self) -> bool:
        """Whether reading is paused because the disk is full or lacks its free reserve."""
        return self._disk_full_until_ms > 0 or self._reserve.is_short

    def is_full(self, partition: int) -> bool:
        return partition in self._full

    def look_at_limits(self, partition: int, shard: Shard) -> None:
        """Pause or resume reading of this shard by the limits of `admission`. A shard that catches
        up or must read a move reads on, because some of its records end only then."""
        reached, was_full = None, partition in self._full
        if shard.state is State.READY and shard.admission.awaited_move is None:
            reached = self._limits.reached(shard, is_full=was_full)
        if reached is not None and not was_full:
            self._full.add(partition)
            log.warning(
                "limit reached: reading of the partition is paused until an eighth is free",
                partition=partition,
                why=reached,
            )
        elif reached is None and was_full:
            self._full.discard(partition)
            log.info("partition is below its limit: reading continues", partition=partition)

    def apply(
        self, shards: Mapping[int, Shard], awake: Mapping[int, Shard], *, is_memory_exceeded: bool
    ) -> None:
        """Pause partitions with a backlog or at a limit, or all if memory or disk is full. If an
        operator or the disk reserve pauses reading, still read partitions that catch up, because
        they deliver nothing yet. Pause no partition twice: a pause drops the client's buffer."""
        if is_memory_exceeded != self._was_memory_exceeded:
            self._was_memory_exceeded = is_memory_exceeded
            log.info(
                "memory budget used up: reading is paused until memory is written to disk"
                if is_memory_exceeded
                else "memory is below its budget: reading continues"
            )
        if is_memory_exceeded or self._disk_full_until_ms > 0:
            held = set(shards)
        elif self._reserve.is_short or self.is_ingest_paused:
            held = {p for p, shard in shards.items() if shard.backlog or shard.state is State.READY}
        else:
            held = {p for p, shard in awake.items() if shard.backlog} | self._full
        if fresh := held - self._paused:
            self._ingress.pause(fresh)
            self._paused |= fresh
            if waiting := sorted(number for number in fresh if shards[number].waits_for_clock):
                log.warning("clock behind the watermark: records stay unread", partitions=waiting)
        if self._paused:
            self.resume(self._paused - held)

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch these partitions again. Else a partition that leaves paused comes back paused."""
        if paused := self._paused.intersection(partitions):
            self._ingress.resume(paused)
            self._paused -= paused

    def forget(self, partition: int) -> None:
        self._full.discard(partition)
        self.resume([partition])

    def look_at_disk(self, elapsed_ms: int) -> None:
        if elapsed_ms < self._next_look_ms:
            return
        self._next_look_ms = elapsed_ms + LOOK_EVERY_MS
        try:
            size_bytes, free_bytes = self._disk_space()
        except OSError:
            return
        reserve, was_short = self._reserve, self._reserve.is_short
        reserve.observe(size_bytes, free_bytes)
        if reserve.is_short and not was_short:
            log.error(
                IS_HELD,
                why=f"{shown_size(free_bytes)} are free, less than disk_reserve",
                until=f"{shown_size(reserve.enough(size_bytes))} are free",
            )
        elif was_short and not reserve.is_short:
            log.info("local disk has space again: reading continues", free=shown_size(free_bytes))

    def may_write(self, elapsed_ms: int) -> bool:
        return elapsed_ms >= self._disk_full_until_ms

    def disk_full(self, full: StorageFull, elapsed_ms: int) -> None:
        if not self._disk_full_until_ms:
            log.error(IS_HELD, why=str(full))
        self._disk_full_until_ms = elapsed_ms + FULL_RETRY_MS

    def disk_has_space(self) -> None:
        if self._disk_full_until_ms:
            log.info("local disk has space again: reading continues")
        self._disk_full_until_ms = 0
