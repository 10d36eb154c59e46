"""`Pipeline.turn`, the loop that all records pass. It has no locks. While a transaction commits,
the next records are fetched. Nothing is ingested or planned before the commit is confirmed."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import structlog

from proxy.clock import Clock, Moment
from proxy.dispatch.hops import named_hop
from proxy.dispatch.paused_records import PausedRecords
from proxy.kafka.ingress import Fetched, Ingress
from proxy.publishing.failures import GroupMoved, Throttled
from proxy.publishing.transaction import Publisher, Transaction
from proxy.recovery.recovery import Recovery
from proxy.scheduling.batch import Batch, Plan
from proxy.scheduling.purges import SweepLimits
from proxy.scheduling.shard import Shard, State
from proxy.session.ends import PurgeLog, count_ends
from proxy.session.limits import BackPressure, MemoryBudget
from proxy.session.pacing import REST_MS, Pacing, RestingShards
from proxy.telemetry.metrics import Metrics
from storage.errors import StorageError, StorageFull
from storage.store import dues_of, targets_of

LONGEST_WAIT_MS: Final = 50
SWEPT_AT_ONCE: Final = 300
"""At most this many outcomes of purges are in a transaction, because due records wait for them."""
TIDY_ENTRIES: Final = 2_048
TIDY_S: Final = 0.005
TIDIED_SHARE: Final = 4
"""If turns follow each other closely, each turn tidies 1/TIDIED_SHARE of the shards."""
PLAN_S: Final = 1.0
"""Planning stops after this time. The next turn begins with the shards that are left."""

TraceCommitted: TypeAlias = Callable[[Sequence[Batch[Any]], float, int], None]
"""Called after a commit with the batches, the duration in seconds, and the time in epoch ms."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A transaction under way, and its plans, which take effect with the commit."""

    plans: Mapping[int, Plan]
    transaction: Transaction
    started_s: float


class Pipeline:
    """Takes the records of its shards from the ingress to their targets. `shards` changes only
    inside `fetch` or between turns."""

    def __init__(
        self,
        ingress: Ingress,
        recovery: Recovery,
        publisher: Publisher,
        clock: Clock,
        pacing: Pacing,
        memory: MemoryBudget,
        metrics: Metrics,
        back_pressure: BackPressure,
        paused: PausedRecords,
        trace: TraceCommitted | None = None,
    ) -> None:
        self.shards: dict[int, Shard] = {}
        self.is_assigned = False
        """The group has assigned partitions to this worker, perhaps none."""
        self.is_lost = False
        """The group has given this worker's partitions to others, so the session must end."""
        self._ingress, self._recovery, self._publisher = ingress, recovery, publisher
        self._clock, self._pacing = clock, pacing
        self.memory, self.back_pressure, self._paused = memory, back_pressure, paused
        self._metrics, self._purge_log, self._trace = metrics, PurgeLog(metrics), trace
        self._under_way: _UnderWay | None = None
        self._uncommitted_at_first: set[int] = set()
        self._resting, self._awake = RestingShards(), dict[int, Shard]()
        self._may_begin = self._lets_go = False
        """Whether a transaction may begin in this turn, and whether paused records are released."""
        self._idle: AbstractSet[int] = frozenset()
        """Shards to be committed in this turn even without changes."""
        self.steps, self._pauses_version = metrics.steps, paused.release.version
        self._first_planned = self._first_tidied = 0
        """The partitions with which planning and tidying begin."""
        self._has_more_to_tidy = False
        self._is_too_large = False
        """More records must end in the next transaction than a throttling broker allows."""

    @property
    def is_busy(self) -> bool:
        return self._pacing.is_busy

    def pause_ingest(self, is_paused: bool) -> None:
        """From the next fetch on, pause or resume reading of the shards that have caught up."""
        self.back_pressure.is_ingest_paused = is_paused
        self.back_pressure.apply(
            self.shards, self.shards, is_memory_exceeded=self.memory.is_exceeded
        )

    def share_rates_among(self, partitions: int) -> None:
        self._paused.partitions = partitions
        self._paused.serve(len(self.shards))

    def turn(self) -> None:
        """Run one turn of the loop. Raises SessionLost when shards must be recovered.

        1. Fetch: read on from the ingress, while the last transaction commits.
        2. Confirm: wait for that transaction and update memory. If all shards rest, the turn ends.
        3. Put: store the fetched records until they are due, or end them now.
        4. Due: each shard plans which records end now.
        5. Publish: make one transaction of the plans, and do not wait for its commit.
        6. Tidy: let the stores, and purges, do a piece of their own work.
        """
        timed = self.steps.timed
        fetched = timed("fetch", self._fetch)
        timed("confirm", self.confirm)
        if self._is_too_large:
            self._take_again(fetched)
        self._clock.observe_broker(fetched.append_ms)
        at = self._clock.moment()
        self._wake(fetched, at)
        if self.shards and not self._awake:
            return
        records_available = timed("put", self._put, fetched, at)
        plans = timed("due", self._due, at, records_available)
        timed("publish", self._publish, plans, at)
        timed("tidy", self._tidy, at)

    def confirm(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            done = under_way.transaction.wait()
        except GroupMoved as moved:
            log.info("group has changed: planned again after the next fetch", why=str(moved))
            self._metrics.count_transaction("aborted", time.monotonic() - under_way.started_s)
            self._ingress.group_moved()
            return
        except Throttled as throttled:
            self._metrics.count_transaction("aborted", time.monotonic() - under_way.started_s)
            self._note_throttled(throttled)
            return
        took_s = under_way.transaction.committed_at_s - under_way.started_s
        self._pacing.committed(took_s)
        for (partition, plan), batch in zip(under_way.plans.items(), done, strict=True):
            shard = self.shards[partition]
            if shard.purges.offsets:
                self._purge_log.note(shard, plan.position, batch.outcomes)
            shard.confirm(plan, map(named_hop, batch.hops))
            if self._paused.passes:
                last_moved = self._paused.note_written(partition, batch.auxiliary)
                if last_moved is not None:
                    shard.admission.awaited_move = last_moved
        self._resting.wake(under_way.plans)
        if first := self._uncommitted_at_first & under_way.plans.keys():
            self._uncommitted_at_first -= first
            self._recovery.record_first_commit({p: self.shards[p].position.policies for p in first})
        self._count(done, took_s, self._clock.now_ms())

    def _count(self, done: Sequence[Batch[Any]], took_s: float, now_ms: int) -> None:
        self._metrics.count_transaction("committed", took_s)
        deliveries = [delivery for batch in done for delivery in batch.deliveries]
        if deliveries:
            self._metrics.count_deliveries(targets_of(deliveries), now_ms - dues_of(deliveries))
        for batch in done:
            if batch.outcomes or batch.hops or batch.dead_letters:
                count_ends(self._metrics, batch)
        if self._trace is not None:
            self._trace(done, took_s, now_ms)

    def _note_throttled(self, throttled: Throttled) -> None:
        self._pacing.throttled()
        most_bytes, shards = self._pacing.throttling.most_bytes, self.shards.values()
        log.warning(
            "transaction aborted because the broker throttles: the next ones are smaller",
            why=str(throttled),
            most_bytes=most_bytes,
        )
        self.memory.begin(sum(shard.ending_bytes for shard in shards), most_bytes)
        self._is_too_large = (
            self.memory.left_bytes < 0
            or sum(shard.ending for shard in shards) > self._pacing.largest_records
        )

    def _take_again(self, fetched: Fetched) -> None:
        """Recover the shards with records that ended at ingestion, and read these records again.
        Otherwise all these records must end in one transaction, which throttling does not allow."""
        self._is_too_large = False
        partitions = [partition for partition, shard in self.shards.items() if shard.ending]
        for partition in partitions:
            fetched.records.pop(partition, None)
            fetched.ends.pop(partition, None)
        self._drop(partitions)
        self._ingress.rewind(self.take_over(partitions))

    def take_over(self, partitions: Sequence[int]) -> dict[int, int]:
        """Recover the shards of newly assigned partitions. Return the offsets to read on from."""
        shards = self._recovery.take_over(partitions)
        self.shards.update(shards)
        self._paused.serve(len(self.shards))
        self._uncommitted_at_first.update(shards)
        self.is_assigned = True
        return {partition: shard.next_offset for partition, shard in shards.items()}

    def hand_over(self, partitions: Iterable[int]) -> None:
        """Commit offsets and floors, write local state, and close shards for another worker. Commit
        nothing while the broker throttles."""
        self.confirm()
        owned = [p for p in partitions if p in self.shards]
        at = self._clock.moment()
        caught_up = [p for p in owned if self.shards[p].state is not State.REPLAYING]
        plans = {p: self.shards[p].plan(at.now_ms, 0) for p in caught_up}
        moved = {
            p: plan
            for p, plan in plans.items()
            if self.shards[p].has_moved
            or p in self._uncommitted_at_first
            or plan.position.floor > self.shards[p].position.floor
        }
        if not self._pacing.throttling.wait_ms():
            self._publish(moved, at)
            self.confirm()
        self._drop(owned)

    def lose(self, partitions: Iterable[int]) -> None:
        """Write local state and close shards that another worker already owns. Commit nothing."""
        self.is_lost = True
        self.confirm()
        self._drop([p for p in partitions if p in self.shards])

    def abandon(self) -> None:
        """Drop all shards and the uncommitted transaction, whose result only the broker knows."""
        self._under_way = None
        self._drop(list(self.shards))

    def _fetch(self) -> Fetched:
        wait_s, most = self._wait_ms() / 1000, self._pacing.fetch_records(len(self._awake))
        is_idle = not self._awake and not self._pacing.is_reading_throttled
        return self._ingress.fetch(wait_s, most, is_busy=self._pacing.is_gathering, is_idle=is_idle)

    def _wake(self, fetched: Fetched, at: Moment) -> None:
        """Find the shards for this turn. All wake if pauses changed or memory is exceeded."""
        release, is_everything = self._paused.release, self.memory.is_exceeded
        is_everything |= self._pauses_version != release.version
        self._pauses_version = release.version
        self._lets_go = bool(release.resumed) and release.looks_for_paused(at.now_ms)
        self._may_begin = self._pacing.may_begin(at.elapsed_ms)
        self._idle = frozenset()
        if self._may_begin:
            self._idle = self._pacing.take_idle(self.shards, at.elapsed_ms)
        rested = self._resting.rested(math.inf if is_everything else at.elapsed_ms)
        shards, ends = self.shards, fetched.ends.items()
        ended = [p for p, end in ends if p in shards and end > shards[p].next_offset]
        self._resting.wake((*rested, *self._idle, *fetched.records, *ended))
        self._awake = self._resting.awake(self.shards)

    def _put(self, fetched: Fetched, at: Moment) -> int:
        """Ingest fetched records and backlogs. Return how many more records may end."""
        awake, memory, pressure = self._awake, self.memory, self.back_pressure
        ending_anyway = sum(shard.ending for shard in awake.values())
        records_available = self._pacing.records_available(ending_anyway, at.elapsed_ms)
        pressure.look_at_disk(at.elapsed_ms)
        ending_bytes = sum(shard.ending_bytes for shard in awake.values())
        memory.begin(ending_bytes, self._pacing.throttling.most_bytes)
        for partition, shard in awake.items():
            records = fetched.records.get(partition, [])
            if records or shard.backlog:
                ending, before_bytes = shard.ending, shard.ending_bytes
                max_records = min(self._pacing.largest_records, ending + max(0, records_available))
                max_bytes = before_bytes + max(0, memory.left_bytes)
                shard.ingest(records, at.now_ms, max_records, max_bytes)
                records_available -= shard.ending - ending
                memory.left_bytes -= shard.ending_bytes - before_bytes
                ending_bytes += shard.ending_bytes - before_bytes
            if partition in fetched.ends:
                shard.reach(fetched.ends[partition])
            memory.look(shard, at.now_ms + REST_MS + 1)
            if pressure.has_limits and (records or pressure.is_full(partition)):
                pressure.look_at_limits(partition, shard)
        heaviest = memory.judge(self.shards, ending_bytes)
        if heaviest is not None:
            self._resting.wake([heaviest])
        pressure.apply(self.shards, awake, is_memory_exceeded=memory.is_exceeded)
        return records_available

    def _due(self, at: Moment, records_available: int) -> dict[int, Plan]:
        """Plan the next transaction, if it may begin. If shards are left out, the transaction after
        this one begins with them."""
        if not self._may_begin:
            return {}
        until_s = time.monotonic() + PLAN_S
        records_left, sweep_left = self._pacing.next_records, SWEPT_AT_ONCE
        plans, is_cut, looked_at, has_records = dict[int, Plan](), False, False, False
        is_progress_due = self._pacing.is_progress_due(at.elapsed_ms)
        order = _rotated(self._awake, self._first_planned)
        for partition in order:
            shard = self._awake[partition]
            has_moved = shard.has_moved or partition in self._uncommitted_at_first
            is_due = partition in self._idle or (is_progress_due and has_moved)
            if shard.state is State.REPLAYING or not (is_due or self._has_work(shard, at)):
                continue
            if looked_at and not is_cut and (not records_left or time.monotonic() > until_s):
                records_left, is_cut = 0, True
                self._first_planned = partition
            looked_at = True
            max_records = min(records_left, shard.ending + max(0, records_available))
            sweep = SweepLimits(sweep_left, records_left)
            plan = self.memory.plan(shard, at.now_ms, max_records, sweep)
            if self._lets_go:
                plan = self._paused.planned(plan, shard, at.now_ms)
            records = plan.records
            has_records |= records > 0
            if records or is_due:
                plans[partition] = plan
            records_left = max(0, records_left - records)
            sweep_left -= len(plan.swept)
            records_available -= records - shard.ending - len(plan.swept)
        if not is_cut and has_records:
            self._first_planned = order[1] if len(order) > 1 else 0
        return plans

    def _publish(self, plans: Mapping[int, Plan], at: Moment) -> None:
        """Begin one transaction with these plans, and do not wait for its commit."""
        if not plans:
            return
        started_s = time.monotonic()
        batches = [plan.batch for plan in plans.values()]
        offsets = [
            self._ingress.offset(p, plan.position.next_offset, plan.position.to_metadata())
            for p, plan in plans.items()
        ]
        swept = sum(len(plan.swept) for plan in plans.values())
        records = sum(plan.records for plan in plans.values())
        ending_bytes = sum(self.shards[p].ending_bytes for p in plans)
        pending_bytes = sum(plan.pending_bytes for plan in plans.values())
        self._pacing.begin(records, at.elapsed_ms, swept, ending_bytes + pending_bytes)
        transaction = self._publisher.publish(
            batches, offsets, self._ingress.group_metadata(), at.now_ms
        )
        self._under_way = _UnderWay(plans, transaction, started_s)

    def _tidy(self, at: Moment) -> None:
        self._has_more_to_tidy = False
        if not self.back_pressure.may_write(at.elapsed_ms):
            return
        until_s = time.monotonic() + TIDY_S
        try:
            order = _rotated(self._resting.untidy(self._awake), self._first_tidied)
            if self._pacing.is_light and not self.memory.is_exceeded:
                order = order[: 1 + len(order) // TIDIED_SHARE]
            for partition in order:
                shard = self.shards[partition]
                self._first_tidied = partition + 1
                has_committed = partition not in self._uncommitted_at_first
                if shard.maintain(TIDY_ENTRIES, at.elapsed_ms):
                    self._has_more_to_tidy = True
                elif has_committed and not (
                    self._lets_go and self._paused.is_needed(shard, at.now_ms)
                ):
                    self._resting.let_rest(partition, shard, at)
                if time.monotonic() > until_s:
                    self._has_more_to_tidy = True
                    break
            else:
                self.back_pressure.disk_has_space()
        except StorageFull as full:
            self.back_pressure.disk_full(full, at.elapsed_ms)

    def _drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            shard = self.shards.pop(partition)
            self.memory.forget(shard)
            self._resting.wake([partition])
            self.back_pressure.forget(partition)
            self._paused.forget(partition)
            self._paused.serve(len(self.shards))
            try:
                shard.flush_and_close()
            except StorageError as error:
                log.error(
                    "local state not written; the broker has it all",
                    partition=partition,
                    why=str(error),
                )
            next_offset = shard.position.next_offset
            log.info("shard given up", partition=partition, next_offset=next_offset)

    def _wait_ms(self) -> int:
        """Return the longest time that the next fetch waits for a first record."""
        now_ms, elapsed_ms = self._clock.moment()
        rate_ms = min(self._pacing.rate_wait_ms(elapsed_ms), LONGEST_WAIT_MS)
        awake = self._resting.awake(self.shards).values()
        if (awake and self._has_more_to_tidy) or any(shard.is_sweeping for shard in awake):
            return 1
        if rate_ms or any(shard.backlog for shard in awake):
            return max(1, rate_ms)
        until_ms = now_ms + self._resting.wait_ms(elapsed_ms, LONGEST_WAIT_MS)
        for shard in awake:
            if shard.state is State.READY:
                until_ms = min(until_ms, shard.view.fires_ms)
        return max(0, until_ms - now_ms, self._pacing.wait_ms(elapsed_ms))

    def _has_work(self, shard: Shard, at: Moment) -> bool:
        """Return whether a plan may hold records. A plan costs ten times as much as this check."""
        is_due = shard.state is State.READY and shard.view.fires_ms <= at.now_ms
        if is_due or shard.ending > 0 or shard.is_sweeping:
            return True
        return self._lets_go and self._paused.is_needed(shard, at.now_ms)


def _rotated(partitions: Iterable[int], first: int) -> list[int]:
    return sorted(partitions, key=lambda partition: (partition < first, partition))
