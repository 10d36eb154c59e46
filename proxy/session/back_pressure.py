"""When to stop fetching: while records of a partition wait, as much waits as may, disk or memory
have no room, or an operator has paused taking in.

Times are of the monotonic clock, in ms.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from proxy.config.machine import DiskReserve
from proxy.config.sizes import shown_size
from proxy.kafka.ingress.ingress import Ingress
from proxy.scheduling.shard import Shard, State
from proxy.session.waiting_limits import WaitingLimits
from storage.errors import StorageFull

FULL_RETRY_MS: Final = 1_000
LOOK_EVERY_MS: Final = 1_000
IS_HELD: Final = "local disk full: reading of the ingress is held"

log = structlog.get_logger(__name__)


class BackPressure:
    """Pauses and resumes the partitions of `ingress`.

    `disk_space` tells size and free bytes of the disk; an OSError of it changes nothing."""

    def __init__(
        self,
        ingress: Ingress,
        reserve: DiskReserve,
        disk_space: Callable[[], tuple[int, int]],
        limits: WaitingLimits,
    ) -> None:
        self._ingress, self._limits = ingress, limits
        self._reserve, self._disk_space = reserve, disk_space
        self._paused: set[int] = set()
        self._full: set[int] = set()
        self._disk_full_until_ms = self._next_look_ms = 0
        self._was_memory_exceeded = False
        self.is_ingest_paused = False
        """Whether an operator wants nothing more to be read (docs/exactly-once.md, rule 5)."""

    @property
    def is_disk_held(self) -> bool:
        """Whether nothing more is read since the disk is full, or its reserve would be used up."""
        return self._disk_full_until_ms > 0 or self._reserve.is_short

    def is_full(self, partition: int) -> bool:
        """Whether as much of it waits as the setting `admission` allows."""
        return partition in self._full

    def look_at_limits(self, partition: int, shard: Shard) -> None:
        """Hold reading of this shard at a limit of `admission`, or let it go on.

        A shard that catches up reads on. So does a shard that awaits a move: records that a pause
        has held back leave only when their moves are read.
        """
        reached, was_full = None, partition in self._full
        if shard.state is State.READY and shard.awaited_move is None:
            reached = self._limits.reached(shard, is_held=was_full)
        if reached is not None and not was_full:
            self._full.add(partition)
            log.warning(
                "limit reached: reading of the partition is held until an eighth is free",
                partition=partition,
                why=reached,
            )
        elif reached is None and was_full:
            self._full.discard(partition)
            log.info("partition has room again: reading goes on", partition=partition)

    def apply(
        self, shards: Mapping[int, Shard], awake: Mapping[int, Shard], *, is_memory_exceeded: bool
    ) -> None:
        """Pause the partitions whose records have to wait, or all while there is no room for any.
        One that catches up is read on all the same while an operator or the reserve holds reading:
        before that nothing of it is delivered. Of those that rest no record waits.

        What the client library has fetched of a partition is fetched again after a pause.
        """
        if is_memory_exceeded != self._was_memory_exceeded:
            self._was_memory_exceeded = is_memory_exceeded
            log.info(
                "memory budget used up: reading is held until memory is written to disk"
                if is_memory_exceeded
                else "memory budget has room again: reading goes on"
            )
        if is_memory_exceeded or self._disk_full_until_ms > 0:
            held = set(shards)
        elif self._reserve.is_short or self.is_ingest_paused:
            held = {p for p, shard in shards.items() if shard.waiting or shard.state is State.READY}
        else:
            held = {p for p, shard in awake.items() if shard.waiting} | self._full
        if fresh := held - self._paused:
            self._ingress.pause(fresh)
            self._paused |= fresh
            _log_waiting_for_clock(shards, fresh)
        self.resume(self._paused - held)

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch them again. To be called for partitions given up, too: the client library remembers
        that one is paused even when it goes and comes back."""
        if paused := self._paused.intersection(partitions):
            self._ingress.resume(paused)
            self._paused -= paused

    def forget(self, partition: int) -> None:
        """This one is given up."""
        self._full.discard(partition)
        self.resume([partition])

    def look_at_disk(self, elapsed_ms: int) -> None:
        """Once a second: is more left than the reserve?"""
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
            log.info("local disk has room again: reading goes on", free=shown_size(free_bytes))

    def may_write(self, elapsed_ms: int) -> bool:
        """False for a moment after the disk was full."""
        return elapsed_ms >= self._disk_full_until_ms

    def disk_full(self, full: StorageFull, elapsed_ms: int) -> None:
        """The stores could not write: nothing is fetched until they can."""
        log.error(IS_HELD, why=str(full))
        self._disk_full_until_ms = elapsed_ms + FULL_RETRY_MS

    def disk_has_space(self) -> None:
        """The stores have written what they had to."""
        self._disk_full_until_ms = 0


def _log_waiting_for_clock(shards: Mapping[int, Shard], partitions: Iterable[int]) -> None:
    waiting = sorted(number for number in partitions if shards[number].waits_for_clock)
    if waiting:
        log.warning("clock behind the watermark: records wait", partitions=waiting)
