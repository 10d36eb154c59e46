"""Admin API over simulated workers and a simulated broker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from proxy.admin.app import AdminApp
from proxy.admin.broker_access import IngressFacts
from proxy.admin.calls import Site
from proxy.admin.changes import Change, read_change
from proxy.admin.queries import (
    CountedShard,
    FindId,
    FindMove,
    FindMoves,
    FindRecord,
    NextOffsets,
    PendingByTime,
    ScanPending,
    Workers,
)
from proxy.config.settings import AdminSettings, ReleaseSettings, Settings, TargetLimit
from proxy.dispatch.hops import NOT_COMMITTED, Moving, MovingState
from proxy.kafka.control import ControlResult
from proxy.kafka.unreadable import UnreadableBatch
from proxy.logs import Level
from proxy.protocol.body import Headers, Message
from proxy.protocol.parsed import Purge
from proxy.protocol.position import NEVER_MS
from proxy.scheduling.batch import OutgoingRecord
from proxy.scheduling.pending import END, Found, PendingPiece, PendingRecord
from proxy.telemetry.status import ShardStatus, Status
from storage.store import Key, TargetCounts
from tests.support.simulation.admin_exchange import exchange
from tests.support.simulation.admin_letters import MadeUpLetters
from tests.support.simulation.admin_traces import MadeUpTraces
from tests.support.simulation.stand_in import Record

INGRESS = "timer.ingress"
TWICE = b"twice"
FAR_MS = 2**50
KNOWN = {b"known", TWICE}
LOCAL = {"host": "127.0.0.1:9464"}


@dataclass
class MadeUpWorkers(Workers):
    level: Level = "info"
    refusal: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    def ask(self, query: Any) -> Any:
        self.asked.append(query)
        if self.refusal is not None:
            raise self.refusal
        match query:
            case PendingByTime(edges_ms, partitions):
                return _counted(len(edges_ms) + 1, partitions)
            case FindId(ident):
                found = Found(f"{INGRESS}/1/7", ident, "pending", "orders", 5, 6)
                return [found] * (2 if ident == TWICE else ident in KNOWN)
            case FindRecord(record):
                return [Found(f"{INGRESS}/0/{record.offset()}", None, "ended")]
            case FindMove(record, deliver_at_ms):
                return [_moving(record, deliver_at_ms)]
            case NextOffsets():
                return [(partition, 10) for partition in range(3)]
            case FindMoves(_, records, at_ms, later_ms):
                at_ms = at_ms if later_ms is None else 1_000 + later_ms
                return [(at_ms, _moving(one, at_ms)) for one in records[:2]]
            case ScanPending(places, _, _):
                return [_piece(partition, after) for partition, after in places]
        raise AssertionError(query)

    def set_level(self, level: Level) -> None:
        self.level = level


def _moving(record: Message, deliver_at_ms: int) -> Moving:
    """Return a made-up record by offset. The record at offset 5 is pending. The record at 4 was
    rewritten as 5. Offset 6 is a half message. The ingest of offset 8 is not committed."""
    partition, offset = record.partition(), record.offset()
    if offset == 5:
        headers: Headers = [("timer-deliver-at", b"%d" % deliver_at_ms)]
        return Moving(
            "pending", 5, OutgoingRecord(INGRESS, None, None, partition, headers, ("moved", 5))
        )
    if offset == 4:
        return Moving("ended", 5)
    states: dict[int, MovingState] = {6: "half-message", 8: NOT_COMMITTED}
    return Moving(states.get(offset, "ended"), offset)


def _counted(buckets: int, partitions: Sequence[int]) -> Sequence[CountedShard]:
    """Count only the first of `partitions`, as if the time were over then. Partition 0 has one
    record per bucket, and partition 1 has two."""
    counts = {0: 1, 1: 2}.get(partitions[0], 0)
    return [CountedShard(partitions[0], [counts] * buckets)]


def _piece(partition: int, after: Key) -> PendingPiece:
    """Return three pending records, or none for the last partition. One record fires at its due
    time, one is held back by a rate limit, and one is undecided."""
    origin = f"{INGRESS}/{partition}"
    records = [
        PendingRecord(1_000, 1, f"{origin}/1", b"a", 1_000, "orders", 30, "scheduled"),
        PendingRecord(FAR_MS, 4, f"{origin}/2", None, 900, "bills", 40, "rate-limited"),
        PendingRecord(NEVER_MS, 3, f"{origin}/3", b"h", 7, "orders", None, "undecided"),
    ]
    beyond = [one for one in records if (one.fires_ms, one.offset) > after]
    return PendingPiece(partition, beyond if partition < 2 else [], END)


@dataclass
class MadeUpBroker:
    """Broker that does everything at once. Workers notice pauses and limits at once."""

    paused: set[str] = field(default_factory=set)
    release_rates: dict[str, int] = field(default_factory=dict)
    limits: dict[str, TargetLimit] = field(default_factory=dict)
    is_ingest_paused: bool = False
    max_per_second: int | None = None
    cancels: list[tuple[bytes, bytes | None, int | None]] = field(default_factory=list)
    recalls: list[tuple[int, str]] = field(default_factory=list)
    purges: list[Purge] = field(default_factory=list)
    moves: list[OutgoingRecord] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    unreadable: dict[int, UnreadableBatch] = field(default_factory=dict)
    skips: list[tuple[int, UnreadableBatch]] = field(default_factory=list)
    max_delay_ms: int = 100 * 366 * 86_400_000
    is_noticed: bool = True
    refusal: Exception | None = None
    changes: list[bytes] = field(default_factory=list)
    change_refusal: Exception | None = None
    cluster: str | None = "a-cluster"

    def cluster_id(self) -> str | None:
        return self.cluster

    def ingress(self) -> IngressFacts:
        return IngressFacts("a-cluster", 3)

    def instances(self) -> set[str]:
        return set()

    def cancel(
        self, ident: bytes, key: bytes | None, partition: int | None, wait_s: float
    ) -> ControlResult:
        if self.refusal is not None:
            raise self.refusal
        self.cancels.append((ident, key, partition))
        origin = f"{INGRESS}/{partition or 0}/9"
        return ControlResult(origin, "applied", "") if wait_s else ControlResult(origin)

    def recall(self, partition: int, origin: str, wait_s: float) -> ControlResult:
        if self.refusal is not None:
            raise self.refusal
        self.recalls.append((partition, origin))
        written = f"{INGRESS}/{partition}/9"
        return ControlResult(written, "applied", "") if wait_s else ControlResult(written)

    def move_all(self, records: Sequence[OutgoingRecord], wait_s: float) -> list[ControlResult]:
        return [self.move(record, wait_s) for record in records]

    def read_all(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Any]]:
        return {
            partition: {offset: self.read(partition, offset) for offset in offsets if offset}
            for partition, offsets in wanted.items()
        }

    def move(self, record: OutgoingRecord, wait_s: float) -> ControlResult:
        self.moves.append(record)
        written = f"{INGRESS}/{record.partition}/9"
        outcome = self.outcomes.pop(0) if self.outcomes else "replaced"
        return ControlResult(written, outcome, "moved") if wait_s else ControlResult(written)

    def purge(self, purge: Purge, wait_s: float) -> Sequence[ControlResult]:
        self.purges.append(purge)
        outcome = "applied" if wait_s else None
        return [ControlResult(f"{INGRESS}/{number}/9", outcome) for number in range(3)]

    def write_change(self, value: bytes) -> None:
        if self.change_refusal is not None:
            raise self.change_refusal
        self.changes.append(value)

    def pause(self, pattern: str) -> None:
        if self.is_noticed:
            self.paused.add(pattern)
            self.release_rates.pop(pattern, None)

    def resume(self, pattern: str, per_second: int | None) -> None:
        if self.is_noticed:
            self.paused.discard(pattern)
            self.release_rates.pop(pattern, None)
            if per_second is not None:
                self.release_rates[pattern] = per_second

    def pause_ingest(self, *, is_paused: bool) -> None:
        if self.is_noticed:
            self.is_ingest_paused = is_paused

    def limit(self, pattern: str, limit: TargetLimit | None) -> None:
        if self.is_noticed:
            self.limits.pop(pattern, None)
            if limit is not None:
                self.limits[pattern] = limit

    def limit_workers(self, per_second: int | None) -> None:
        if self.is_noticed:
            self.max_per_second = per_second

    def unreadable_batch(self, partition: int) -> UnreadableBatch | None:
        return self.unreadable.get(partition)

    def skip(self, partition: int, batch: UnreadableBatch) -> None:
        self.skips.append((partition, batch))

    def read(self, partition: int, offset: int) -> Message | None:
        return None if offset == 0 else Record(INGRESS, partition, offset, None, None, [], 1)


class MadeUpApi:
    """Real API over simulated parts: two workers, three partitions, offsets below 10.
    `next_offsets` are the committed offsets in the next statuses, one after the other. The last
    offset stays."""

    def __init__(
        self,
        settings: AdminSettings | None = None,
        release: ReleaseSettings | None = None,
        registry: CollectorRegistry | None = None,
        instance: str | None = None,
    ) -> None:
        self.workers, self.broker = MadeUpWorkers(), MadeUpBroker()
        self.letters, self.traces = MadeUpLetters(), MadeUpTraces()
        topics: Any = self.letters
        topics.trace = self.traces.trace
        topics.changes = self._changes
        self.next_offsets, self.is_disk_full = [10], False
        self.site = Site(
            Settings(
                admin=settings or AdminSettings(),
                release=release or ReleaseSettings(),
                instance_id=instance,
            ),
            registry or CollectorRegistry(),
            self.statuses,
            self.workers,
            cast(Any, self.broker),
            topics,
        )
        self.app = AdminApp(self.site)

    def _changes(self, limit: int) -> list[Change]:
        found = [read_change(value) for value in self.broker.changes[-limit:]]
        return [one for one in reversed(found) if one is not None]

    def statuses(self) -> list[Status]:
        next_offset = self.next_offsets.pop(0) if self.next_offsets[1:] else self.next_offsets[0]
        shards = [
            ShardStatus(
                INGRESS,
                number,
                "running",
                next_offset,
                0,
                0,
                3,
                0,
                undecided=number,
                cancelled=number,
            )
            for number in range(3)
        ]
        known = Status(
            heartbeat_monotonic=0.0,
            assigned=True,
            paused=frozenset(self.broker.paused),
            release_rates=dict(self.broker.release_rates),
            limits=dict(self.broker.limits),
            is_ingest_paused=self.broker.is_ingest_paused,
            is_disk_full=self.is_disk_full,
            max_per_second=self.broker.max_per_second,
        )
        first, second = TargetCounts({"orders": 3}), TargetCounts({"orders": 1, "bills": 5})
        return [
            replace(known, shards=tuple(shards[:1]), pending_by_target=first),
            replace(known, shards=tuple(shards[1:]), pending_by_target=second),
        ]

    def ask(
        self,
        url: str,
        method: str = "GET",
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        code, _, text = self.reply(f"/api/v1{url}", method, body, headers)
        return code, json.loads(text)

    def reply(
        self,
        url: str,
        method: str = "GET",
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        said = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        raw = said.encode() if isinstance(said, str) else said
        lengths = {"content-length": str(len(raw))} if raw else {}
        return exchange(self.app, method, url, {**LOCAL, **kind, **lengths, **(headers or {})}, raw)
