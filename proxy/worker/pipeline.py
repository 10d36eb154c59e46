"""The journey of a record, in order: fetch, confirm, parse and put, due, publish, tidy.

One loop without locks. While a transaction commits, the next records are fetched and files are
tidied; nothing is ingested or planned before it has been confirmed. So whenever records meet the
schedule, memory holds exactly what the broker has committed, and what was ingested since.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

import structlog
from confluent_kafka import TopicPartition

from proxy.clock import Clock
from proxy.kafka.ingress import Fetched
from proxy.publishing.publisher import GroupMoved, Publishing
from proxy.publishing.release_control import RateCap, Unlimited
from proxy.records.headers import ID
from proxy.records.position import PolicyFrom
from proxy.scheduling.batch import Batch, ResolvedBatch
from proxy.scheduling.plan import Plan
from proxy.scheduling.shard import Shard, State
from proxy.telemetry.metrics import Metrics
from storage.errors import StorageError, StorageFull
from storage.store import dues_of

LONGEST_WAIT_MS: Final = 50
IDLE_COMMIT_MS: Final = 10_000
"""An idle shard's watermark is committed this often, so that it is seen to move."""
TIDY_ENTRIES: Final = 2_048
BUSY_RECORDS: Final = 32
BUSY_PACE_MS: Final = 10
"""After a transaction with so many records the next begins this much later at the soonest: each
costs the broker as much as hundreds of records."""
AMPLE_RECORDS: Final = 500
AMPLE_RECORDS_A_MS: Final = 64
LONGEST_PACE_MS: Final = 50
"""Beyond the first number the second adds a millisecond, up to the third: the cores have to be
shared with the broker."""
FIRST_RECORDS: Final = 2_000
"""A transaction holds so many, or twice what the last one held: the first records of a burst do
not wait for a long transaction."""
FULL_RETRY_MS: Final = 1_000

log = structlog.get_logger(__name__)


class IngressPort(Protocol):
    """What the pipeline asks of `proxy.kafka.ingress.Ingress`."""

    def fetch(self, wait_s: float, *, is_busy: bool = False) -> Fetched: ...
    def newest(self, partition: int) -> int: ...
    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...
    def offset(self, partition: int, next_offset: int, metadata: str) -> TopicPartition: ...
    def group_metadata(self) -> object: ...


class PublisherPort(Protocol):
    """What the pipeline asks of `proxy.publishing.publisher.Publisher`."""

    def publish(
        self,
        batches: list[Batch],
        offsets: list[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> Publishing: ...


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A transaction that commits meanwhile, and what it makes true of each shard."""

    plans: Mapping[int, Plan]
    publishing: Publishing
    started_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one transaction (settings `release`)."""

    transaction_records: int = 10_000
    transaction_interval_ms: int = 50


class Pipeline:
    """Moves records of the shards it owns from the ingress to their targets.

    `shards` changes only between turns or inside `fetch`, when partitions come and go.
    `first_commit` is called once per shard, after its first transaction, with its policies. `cap`
    bounds how many records end a second.
    """

    def __init__(
        self,
        ingress: IngressPort,
        publisher: PublisherPort,
        clock: Clock,
        limits: Limits,
        metrics: Metrics,
        first_commit: Callable[[int, Sequence[PolicyFrom]], None],
        cap: RateCap | Unlimited,
    ) -> None:
        self.shards: dict[int, Shard] = {}
        self._ingress, self._publisher = ingress, publisher
        self._clock, self._limits, self._metrics = clock, limits, metrics
        self._first_commit, self._cap = first_commit, cap
        self._under_way: _UnderWay | None = None
        self._uncommitted_at_first: set[int] = set()
        self._paused: set[int] = set()
        self._committed_at_ms = 0
        self._pace_ms = 0
        self._room = FIRST_RECORDS
        self._turns = 0
        self._busy = False
        self._full_until_ms = 0

    def turn(self) -> None:
        """One turn of the loop; raises SessionLost when shards must be recovered."""
        fetched = self._ingress.fetch(self._wait_ms() / 1000, is_busy=self._pace_ms > 0)
        self.confirm()
        self._clock.observe_broker(fetched.append_ms)
        now_ms = self._clock.now_ms()
        self._ingest(fetched, now_ms)
        self._commit(self._plans(now_ms), now_ms)
        self._busy = self._tidy(now_ms)
        self._turns += 1

    def adopt(self, shards: Mapping[int, Shard]) -> None:
        """Shards newly taken over."""
        self.shards.update(shards)
        self._uncommitted_at_first.update(shards)

    def confirm(self) -> None:
        """Wait for the transaction under way, if any, and take over what it has made true."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            done = _result(under_way.publishing)
        except GroupMoved as moved:
            log.info("the group has moved on: planned anew after the next fetch", why=str(moved))
            self._metrics.count_transaction("aborted", time.monotonic() - under_way.started_s)
            return
        for (partition, plan), batch in zip(under_way.plans.items(), done, strict=True):
            self.shards[partition].confirm(plan, _named_hops(batch))
            if partition in self._uncommitted_at_first:
                self._uncommitted_at_first.discard(partition)
                self._first_commit(partition, self.shards[partition].position.policies)
        self._count(done, time.monotonic() - under_way.started_s)

    def release(self, partitions: Iterable[int], *, publish: bool) -> None:
        """Give shards up: commit how far they were read, write their local state, close it."""
        self.confirm()
        leaving = {p: self.shards[p] for p in partitions if p in self.shards}
        if publish and leaving:
            now_ms = self._clock.now_ms()
            moved = {
                p: s.plan(now_ms, 0) for p, s in leaving.items() if s.state is not State.REPLAYING
            }
            self._publish(
                {p: plan for p, plan in moved.items() if self._has_moved(p, plan)}, now_ms
            )
            self.confirm()
        for partition, shard in leaving.items():
            del self.shards[partition]
            self._go_on_fetching(partition)
            _put_away(partition, shard)

    def abandon(self) -> None:
        """Give all shards up, and the transaction under way: the broker knows what became of it."""
        self._under_way = None
        self.release(list(self.shards), publish=False)

    def _ingest(self, fetched: Fetched, now_ms: int) -> None:
        free = self._free(now_ms)
        for partition, shard in self.shards.items():
            records = fetched.records.get(partition, [])
            if records or shard.waiting:
                held = shard.ending
                room = min(self._limits.transaction_records, held + max(0, free))
                shard.ingest(records, now_ms, room)
                free -= shard.ending - held
                self._hold_back(partition, shard)
            if partition in fetched.ends:
                shard.reach(fetched.ends[partition])

    def _hold_back(self, partition: int, shard: Shard) -> None:
        """Fetch no more of a partition whose records have to wait, or that the disk cannot take."""
        must_wait = bool(shard.waiting) or self._full_until_ms > 0
        if must_wait and partition not in self._paused:
            self._ingress.pause(partition)
            self._paused.add(partition)
            if shard.waits_for_clock:
                log.warning("clock behind the watermark: records wait", partition=partition)
        elif not must_wait:
            self._go_on_fetching(partition)

    def _go_on_fetching(self, partition: int) -> None:
        """The client remembers that a partition is paused even when it goes and comes back."""
        if partition in self._paused:
            self._ingress.resume(partition)
            self._paused.discard(partition)

    def _plans(self, now_ms: int) -> dict[int, Plan]:
        """One transaction's plans, no shard always the first to be served."""
        room = self._transaction_room()
        free = self._free(now_ms)
        plans: dict[int, Plan] = {}
        numbers = list(self.shards)
        first = self._turns % len(numbers) if numbers else 0
        for partition in numbers[first:] + numbers[:first]:
            shard = self.shards[partition]
            if shard.state is not State.REPLAYING:
                limit = min(room, shard.ending + max(0, free))
                plans[partition] = plan = shard.plan(now_ms, limit)
                room = max(0, room - plan.records)
                free -= plan.records - shard.ending
        return plans

    def _free(self, now_ms: int) -> int:
        """How many more may end than the shards hold that end with their next transactions."""
        if self._cap.wait_ms(now_ms):
            return 0
        return self._cap.room(now_ms) - sum(shard.ending for shard in self.shards.values())

    def _transaction_room(self) -> int:
        return min(self._limits.transaction_records, self._room)

    def _commit(self, plans: dict[int, Plan], now_ms: int) -> None:
        """Commit what has records at once, mere progress now and then."""
        since_ms = now_ms - self._committed_at_ms
        if since_ms < self._pace_ms:
            return
        chosen = {
            p: plan
            for p, plan in plans.items()
            if plan.records
            or (since_ms >= self._limits.transaction_interval_ms and self._has_moved(p, plan))
            or since_ms >= IDLE_COMMIT_MS
        }
        self._publish(chosen, now_ms)

    def _has_moved(self, partition: int, plan: Plan) -> bool:
        return (
            plan.position.next_offset > self.shards[partition].position.next_offset
            or partition in self._uncommitted_at_first
        )

    def _publish(self, plans: dict[int, Plan], now_ms: int) -> None:
        if not plans:
            return
        started_s = time.monotonic()
        batches = [
            Batch(
                self.shards[p].ingress,
                plan.deliveries,
                plan.dead_letters,
                plan.outcomes,
                plan.auxiliary,
            )
            for p, plan in plans.items()
        ]
        offsets = [
            self._ingress.offset(p, plan.position.next_offset, plan.position.to_metadata())
            for p, plan in plans.items()
        ]
        publishing = self._publisher.publish(
            batches, offsets, self._ingress.group_metadata(), now_ms
        )
        next(publishing)
        self._under_way = _UnderWay(plans, publishing, started_s)
        records = sum(plan.records for plan in plans.values())
        self._cap.take(records, now_ms)
        self._pace_ms = _pace_ms(records, self._transaction_room())
        self._room = max(FIRST_RECORDS, 2 * records)
        self._committed_at_ms = now_ms

    def _count(self, batches: Iterable[Batch | ResolvedBatch], seconds: float) -> None:
        done_ms = self._clock.now_ms()
        self._metrics.count_transaction("committed", seconds)
        for batch in batches:
            if batch.deliveries:
                self._metrics.observe_lateness(done_ms - dues_of(batch.deliveries))
            self._metrics.count_outcomes(
                [outcome.what for outcome in batch.outcomes] + [hop.what for hop in batch.hops]
            )
            if batch.dead_letters:
                reasons = Counter(letter.reason.code for letter in batch.dead_letters)
                self._metrics.count_dead_letters(reasons)
                _say_buried(batch, reasons)

    def _tidy(self, now_ms: int) -> bool:
        """A bounded piece of each store's own work; True when more waits."""
        if now_ms < self._full_until_ms:
            return False
        more = False
        try:
            for shard in self.shards.values():
                more |= shard.maintain(TIDY_ENTRIES)
        except StorageFull as full:
            log.error("local disk full: reading of the ingress is held", why=str(full))
            self._full_until_ms = now_ms + FULL_RETRY_MS
        else:
            self._full_until_ms = 0
        return more

    def _wait_ms(self) -> int:
        """How long the next fetch may wait for a first record."""
        now_ms = self._clock.now_ms()
        cap_ms = min(self._cap.wait_ms(now_ms), LONGEST_WAIT_MS)
        if self._busy:
            return 1
        if cap_ms or any(shard.waiting for shard in self.shards.values()):
            return max(1, cap_ms)
        until_ms = now_ms + LONGEST_WAIT_MS
        for shard in self.shards.values():
            if shard.state is State.READY:
                due_ms = shard.next_due_ms(until_ms)
                until_ms = until_ms if due_ms is None else min(until_ms, due_ms)
        return max(0, until_ms - now_ms, self._committed_at_ms + self._pace_ms - now_ms)


def _result(publishing: Publishing) -> Sequence[Batch | ResolvedBatch]:
    while True:
        try:
            next(publishing)
        except StopIteration as end:
            return cast(Sequence[Batch | ResolvedBatch], end.value)


def _named_hops(batch: Batch | ResolvedBatch) -> list[tuple[bytes, int]]:
    """Ids and offsets of the entries that were rewritten instead of delivered."""
    hops = ((hop.delivery.header(ID), hop.delivery.entry_offset) for hop in batch.hops)
    return [(ident, offset) for ident, offset in hops if ident is not None]


def _pace_ms(records: int, room: int) -> int:
    """A transaction with no room left has a backlog behind it, which must not wait."""
    if not BUSY_RECORDS <= records < room:
        return 0
    beyond_ms = max(0, records - AMPLE_RECORDS) // AMPLE_RECORDS_A_MS
    return min(LONGEST_PACE_MS, BUSY_PACE_MS + beyond_ms)


def _put_away(partition: int, shard: Shard) -> None:
    try:
        shard.flush_and_close()
    except StorageError as error:
        log.error(
            "local state not written; the broker has it all", partition=partition, why=str(error)
        )
    log.info("shard given up", partition=partition, next_offset=shard.position.next_offset)


def _say_buried(batch: Batch | ResolvedBatch, reasons: Mapping[str, int]) -> None:
    """One line per transaction and reason, with the first record as an example."""
    for code, count in reasons.items():
        example = next(letter for letter in batch.dead_letters if letter.reason.code == code)
        log.warning(
            "dead letters",
            reason=code,
            count=count,
            first=batch.ingress.origin(example.offset),
            detail=example.reason.detail,
        )
