"""Snapshots for the page, and their server-sent events."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import accumulate
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from proxy import __version__
from proxy.admin.listing import pending_by_time
from proxy.admin.pages import readiness
from proxy.admin.peers import Asker
from proxy.admin.problem import Problem
from proxy.admin.queries import MailboxFull, NoAnswer, Workers
from proxy.admin.threads import in_thread
from proxy.telemetry.status import Status, covered_by
from storage.store import added

MOST_STREAMS: Final = 16
EVERY_S: Final = 1.0
BY_TIME_EVERY_S: Final = 5.0
TARGETS_SHOWN: Final = 50
SHARDS_SHOWN: Final = 200
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SCALES: Final = {"hour": (5 * MINUTE_MS, 12), "day": (HOUR_MS, 24), "month": (DAY_MS, 30)}
"""Time scale of the page -> length of a bucket in ms, and number of buckets."""
SUMS: Final = {
    "delay_proxy_target_lateness_seconds_count": ("target", "delivered"),
    "delay_proxy_target_lateness_seconds_sum": ("target", "lateness_sum_s"),
    "delay_proxy_dead_letters_total": ("reason", "dead_letters"),
}
"""Metric -> the label by which it is summed, and the name of the sums in a snapshot."""
_SPANS_MS: Final = sorted(
    {0, *(step * n for step, most in SCALES.values() for n in range(most + 1))}
)

log = structlog.get_logger(__name__)


class EventStreams:
    """Streams of events, with one snapshot a second. All open pages get the same snapshots."""

    def __init__(
        self,
        make: Callable[[], dict[str, Any]],
        gather: Callable[[dict[str, Any], Asker], dict[str, Any]],
    ) -> None:
        self.make, self.gather = make, gather
        self.count = 0
        self._own, self._whole = _Kept(), _Kept()
        self._closing = asyncio.Event()

    async def own(self) -> dict[str, Any]:
        """Return the snapshot of this instance."""
        return await self._own.get(lambda: in_thread(self.make))

    async def whole(self, asker: Asker) -> dict[str, Any]:
        """Return the snapshot of the whole group."""

        async def gather() -> dict[str, Any]:
            return await in_thread(partial(self.gather, await self.own(), asker))

        return await self._whole.get(gather)

    def begin(self, asker: Asker) -> AsyncIterator[bytes]:
        """Begin a stream. It ends when the asker's credentials are no longer valid."""
        if self.count >= MOST_STREAMS:
            detail = f"{MOST_STREAMS} pages are open already. Close one."
            raise Problem(503, "busy", detail)
        return self._stream(asker)

    def close(self) -> None:
        """End all streams. Called in the server's loop."""
        self._closing.set()

    async def _stream(self, asker: Asker) -> AsyncIterator[bytes]:
        if self.count >= MOST_STREAMS:
            return
        self.count += 1
        try:
            yield b": begins\n\n"
            while not self._closing.is_set() and asker.is_valid():
                yield await self._event(asker)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), EVERY_S)
        finally:
            self.count -= 1

    async def _event(self, asker: Asker) -> bytes:
        try:
            return f"data: {json.dumps(await self.whole(asker))}\n\n".encode()
        except Exception:
            log.exception("a snapshot for the page could not be made")
            return b": no snapshot\n\n"


class _Kept:
    """A snapshot that is made at most twice a second."""

    def __init__(self) -> None:
        self._newest: dict[str, Any] = {}
        self._made_s = float("-inf")
        self._making = asyncio.Lock()

    async def get(self, make: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        async with self._making:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._made_s >= EVERY_S / 2:
                self._newest = await make()
                self._made_s = now_s
            return self._newest


class Snapshots:
    """Makes snapshots of this instance. To be used by one thread at a time."""

    def __init__(
        self,
        registry: CollectorRegistry,
        read_statuses: Callable[[], Sequence[Status]],
        workers: Workers,
    ) -> None:
        self._registry, self._read_statuses, self._workers = registry, read_statuses, workers
        self._by_time: dict[str, Any] | None = None
        self._asked_ms = 0

    def make(self, now_ms: int) -> dict[str, Any]:
        """Return a snapshot. Its field `by_time` is None while a worker does not answer."""
        statuses = self._read_statuses()
        if abs(now_ms - self._asked_ms) >= BY_TIME_EVERY_S * 1000:
            self._asked_ms = now_ms
            try:
                self._by_time = _by_time(self._workers, statuses, now_ms)
            except (NoAnswer, MailboxFull):
                self._by_time = None
        counts = added([status.pending_by_target for status in statuses])
        shown, others = counts.largest(TARGETS_SHOWN)
        shards = [shard for status in statuses for shard in status.shards]
        paused = sorted({pattern for status in statuses for pattern in status.paused})
        code, said = readiness(statuses)
        return {
            "now": now_ms,
            "version": __version__,
            "ready": code == 200,
            "reason": said.get("reason", ""),
            "partitions": covered_by(statuses),
            "pending": counts.total,
            "by_target": shown,
            "others": others,
            "paused": paused,
            "held_targets": held(shown, paused),
            "refused": _refused(statuses),
            "ingest_paused": any(status.is_ingest_paused for status in statuses),
            "disk_full": any(status.is_disk_full for status in statuses),
            "shards": [
                {
                    "partition": shard.partition,
                    "state": shard.state,
                    "pending": shard.pending,
                    "behind": shard.behind,
                    "undecided": shard.undecided,
                }
                for shard in sorted(shards, key=lambda one: one.partition)[:SHARDS_SHOWN]
            ],
            "shard_count": len(shards),
            "by_time": self._by_time,
            **_counted(self._registry),
        }


def held(targets: Iterable[str], paused: Sequence[str]) -> list[str]:
    """Return the targets that match a paused pattern."""
    return [target for target in targets if any(fnmatchcase(target, one) for one in paused)]


def _by_time(workers: Workers, statuses: Sequence[Status], now_ms: int) -> dict[str, Any]:
    counted = pending_by_time(workers, statuses, [now_ms + span_ms for span_ms in _SPANS_MS])
    until = dict(zip(_SPANS_MS, accumulate(counted.counts), strict=False))
    scales = {
        name: [until[step * (n + 1)] - until[step * n] for n in range(most)]
        for name, (step, most) in SCALES.items()
    }
    among = {"cancelled": counted.cancelled, "paused": counted.paused}
    return {"from": now_ms, "overdue": until[0], **among, **scales}


def _refused(statuses: Sequence[Status]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in (one for status in statuses for one in status.refused if one.records):
        shown = found.setdefault(one.target, {"records": 0, "oldest_due": one.oldest_due_ms})
        shown["why"] = f"{one.reason}: {one.detail}"
        shown["records"] += one.records
        shown["oldest_due"] = min(shown["oldest_due"], one.oldest_due_ms)
    return found


def _counted(registry: CollectorRegistry) -> dict[str, Any]:
    by_label: dict[str, dict[str, float]] = {name: defaultdict(float) for _, name in SUMS.values()}
    lag_s = 0.0
    for family in registry.collect():
        for name, labels, value, *_ in family.samples:
            if name == "delay_proxy_due_lag_seconds" and value > lag_s:
                lag_s = value
            elif name in SUMS:
                label, shown = SUMS[name]
                by_label[shown][labels[label]] += value
    dead = {reason: count for reason, count in by_label["dead_letters"].items() if count}
    return {**by_label, "dead_letters": dead, "lag_s": lag_s}
