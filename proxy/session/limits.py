"""Limits of a worker's shards: memory, disk, and the setting `admission`. Times are of the
monotonic clock, in ms."""

import ctypes
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import structlog

from proxy.config.machine import DiskReserve, MemoryShares
from proxy.config.settings import AdmissionSettings
from proxy.config.values import shown_size
from proxy.kafka.ingress import Ingress
from proxy.publishing.throttling import UNBOUNDED
from proxy.scheduling.batch import Plan
from proxy.scheduling.purges import SweepLimits
from proxy.scheduling.shard import Shard, State
from storage.errors import StorageFull
from storage.store import TargetCounts

log = structlog.get_logger(__name__)


class MemoryBudget:
    """One worker's memory (setting `memory`). Nothing is fetched while `is_exceeded`. That ends by
    itself: committed records are written out without any fetch."""

    def __init__(self, shares: MemoryShares) -> None:
        self._shares = shares
        self._kept_bytes = self._peeked_bytes = 0
        self._left_bytes = self._planned_bytes = 0
        """For the next transaction: bytes left, and due bodies in memory after the last plan."""
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
        """Decide whether memory is exceeded. Return the partition that must stay awake to flush."""
        self.used_bytes = self._kept_bytes + self._peeked_bytes + ending_bytes
        most_bytes = self._shares.memtables if self.is_exceeded else self._shares.most_memtables
        self.is_exceeded = self._kept_bytes > most_bytes
        if self._kept_bytes <= self._shares.memtables:
            return None
        heaviest = max(shards, key=lambda partition: shards[partition].memtable_bytes)
        shards[heaviest].request_flush()
        return heaviest

    def left_bytes(self, ending_bytes: int, most_bytes: int = UNBOUNDED) -> int:
        """Return the bytes for the next transaction beside `ending_bytes`, at most `most_bytes`."""
        return min(self._shares.transaction, most_bytes) - ending_bytes

    def begin(self, ending_bytes: int, most_bytes: int = UNBOUNDED) -> None:
        self._left_bytes = self.left_bytes(ending_bytes, most_bytes)
        self._planned_bytes = self._peeked_bytes

    def plan(self, shard: Shard, now_ms: int, max_records: int, sweep: SweepLimits) -> Plan:
        """Return the shard's plan within the bytes that are left. Bodies in memory may always
        go."""
        peeked_bytes = shard.view.peeked_bytes
        unpeeked_bytes = max(0, self._shares.transaction - self._planned_bytes)
        max_bytes = min(self._left_bytes, peeked_bytes + unpeeked_bytes)
        plan = shard.plan(now_ms, max_records, max_bytes, sweep)
        self._left_bytes -= plan.pending_bytes
        self._planned_bytes += shard.store.peeked_bytes - peeked_bytes
        return plan


CALM_FOR_S: Final = 4.0
FEW_RECORDS: Final = 1_000
"""More records within CALM_FOR_S need the memory again at once."""
TRIMS: Final = 8
"""After this many looks the memtables are on disk, which frees most memory."""


def _trim() -> None:
    """Return freed memory to the system. Only glibc keeps much freed memory."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreedMemory:
    """Gives freed memory back to the system in calm times. A trim takes about 10 ms."""

    def __init__(self, trim: Callable[[], None] = _trim) -> None:
        self._trim = trim
        self._next_look_s = 0.0
        self._read_to = self._calm_looks = 0

    def look(self, now_s: float, read_to: int, *, is_busy: bool) -> None:
        """Trim if few records were read and delivered. `read_to` is the sum of the offsets read."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + CALM_FOR_S
        is_calm = not is_busy and read_to - self._read_to < FEW_RECORDS
        self._calm_looks = self._calm_looks + 1 if is_calm else 0
        self._read_to = read_to
        if 0 < self._calm_looks <= TRIMS:
            self._trim()


# The limits of `admission`: docs/operations/sizing.md#limits-on-what-may-wait.

REMEMBERED: Final = 10_000
SLACK_SHARE: Final = 8
"""1/SLACK_SHARE of a limit must be free before reading goes on."""


class _Limits:
    """Limits of records or of bytes, in all and for each target. `per_target`: shell pattern ->
    limit. The first match counts."""

    def __init__(
        self, in_all: int | None, per_target: Mapping[str, int], names: tuple[str, str], unit: str
    ) -> None:
        self._in_all, self._per_target = in_all, per_target
        self._name, self._name_by_target = names
        self._unit = unit
        self._matched: dict[str, int | None] = {}

    @property
    def is_set(self) -> bool:
        return self._in_all is not None or bool(self._per_target)

    def reached(
        self, in_all: int, by_target: Callable[[], TargetCounts], *, is_held: bool
    ) -> str | None:
        if self._in_all is not None and in_all >= _wanted(self._in_all, is_held=is_held):
            return self._said(in_all, self._name, self._in_all)
        if not self._per_target:
            return None
        counts = by_target()
        for target, count in counts.by_name.items():
            limit = self._of(target) if count else None
            if limit is not None and count >= _wanted(limit, is_held=is_held):
                return self._said(count, self._name_by_target, limit, f" for {target}")
        limit = max(self._per_target.values())
        if counts.others >= _wanted(limit, is_held=is_held):
            return self._said(counts.others, self._name_by_target, limit, " for further targets")
        return None

    def _of(self, target: str) -> int | None:
        if target not in self._matched:
            if len(self._matched) >= REMEMBERED:
                self._matched.clear()
            limits = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
            self._matched[target] = next(limits, None)
        return self._matched[target]

    def _said(self, count: int, name: str, limit: int, of_target: str = "") -> str:
        return f"{count} {self._unit}{of_target} wait, and admission.{name} is {limit}"


def _wanted(limit: int, *, is_held: bool) -> int:
    return limit - limit // SLACK_SHARE if is_held else limit


class WaitingLimits:
    """The limits of the setting `admission`, for each ingress partition by itself. Undecided half
    messages do not count: only reading ends them."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._records = _Limits(
            settings.records, settings.per_target, ("records", "per_target"), "records"
        )
        self._sizes = _Limits(
            settings.size_bytes, settings.bytes_per_target, ("bytes", "bytes_per_target"), "bytes"
        )
        self.are_set = self._records.is_set or self._sizes.is_set

    def reached(self, shard: Shard, *, is_held: bool) -> str | None:
        """Return which limit pauses reading of this shard, None if there is room."""
        waiting = shard.pending()
        records = self._records.reached(waiting, shard.pending_by_target, is_held=is_held)
        return records or self._sizes.reached(
            _still_waiting(shard.store.pending_bytes(), waiting, shard.store.pending()),
            lambda: _bytes_by_target(shard),
            is_held=is_held,
        )


def _bytes_by_target(shard: Shard) -> TargetCounts:
    in_bytes, waiting = shard.store.pending_bytes_by_target(), shard.pending_by_target()
    stored = shard.store.pending_by_target()
    by_name = {
        target: _still_waiting(size_bytes, waiting.most(target), stored.most(target))
        for target, size_bytes in in_bytes.by_name.items()
    }
    return TargetCounts(by_name, _still_waiting(in_bytes.others, waiting.others, stored.others))


def _still_waiting(size_bytes: int, waiting: int, stored: int) -> int:
    """Estimate the bytes of the pending records, by the mean size of all stored records. Cancelled
    records stay stored until their time. They must not pause reading for days."""
    return size_bytes * waiting // stored if stored else 0


FULL_RETRY_MS: Final = 1_000
LOOK_EVERY_MS: Final = 1_000
IS_HELD: Final = "local disk full: reading of the ingress is held"


class BackPressure:
    """Pauses and resumes the partitions of `ingress`. `disk_space` returns the disk's size and free
    bytes, or raises OSError."""

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
        self.has_limits = limits.are_set
        self.is_ingest_paused = False
        """An operator has paused reading (docs/exactly-once.md, rule 5)."""

    @property
    def is_disk_held(self) -> bool:
        """Whether reading is paused because the disk is full or its reserve would be used up."""
        return self._disk_full_until_ms > 0 or self._reserve.is_short

    def is_full(self, partition: int) -> bool:
        return partition in self._full

    def look_at_limits(self, partition: int, shard: Shard) -> None:
        """Pause reading of this shard at a limit of `admission`, or resume it. A shard that catches
        up or awaits a move reads on: paused records leave only by their moves."""
        reached, was_full = None, partition in self._full
        if shard.state is State.READY and shard.admission.awaited_move is None:
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
        """Pause the partitions with waiting records, or all if no record has room. A partition that
        catches up is read on for an operator or the reserve: it delivers nothing before. A pause
        makes the client library drop its buffer and fetch again."""
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
        if self._paused:
            self.resume(self._paused - held)

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch these again. The client library remembers a pause when a partition goes and comes
        back."""
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
            log.info("local disk has room again: reading goes on", free=shown_size(free_bytes))

    def may_write(self, elapsed_ms: int) -> bool:
        """Return False for a moment after the disk was full."""
        return elapsed_ms >= self._disk_full_until_ms

    def disk_full(self, full: StorageFull, elapsed_ms: int) -> None:
        log.error(IS_HELD, why=str(full))
        self._disk_full_until_ms = elapsed_ms + FULL_RETRY_MS

    def disk_has_space(self) -> None:
        self._disk_full_until_ms = 0


def _log_waiting_for_clock(shards: Mapping[int, Shard], partitions: Iterable[int]) -> None:
    waiting = sorted(number for number in partitions if shards[number].waits_for_clock)
    if waiting:
        log.warning("clock behind the watermark: records wait", partitions=waiting)
