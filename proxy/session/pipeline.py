"""The journey of a record: `Pipeline.turn`.

One loop without locks. While a transaction commits, the next records are fetched and files are
tidied; nothing is ingested or planned before it has been confirmed. So whenever records meet the
schedule, memory holds exactly what the broker has committed, and what was ingested since.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from proxy.clock import Clock, Moment
from proxy.dispatch.hops import named_hop
from proxy.dispatch.parked_records import ParkedRecords
from proxy.kafka.ingress.ingress import Fetched, Ingress
from proxy.protocol.position import PolicyFrom
from proxy.publishing.kafka_transactions import GroupMoved, Throttled
from proxy.publishing.transaction import Publisher, Transaction
from proxy.recovery.recovery import Recovery
from proxy.scheduling.batch import Batch, Plan, ResolvedBatch
from proxy.scheduling.shard import Shard, State, SweepLimits
from proxy.session.back_pressure import BackPressure
from proxy.session.memory_budget import MemoryBudget
from proxy.session.pacing import Pacing
from proxy.session.resting_shards import RestingShards
from proxy.session.transaction_metrics import TransactionMetrics
from proxy.telemetry.metrics import Metrics
from storage.errors import StorageError, StorageFull

LONGEST_WAIT_MS: Final = 50
SWEPT_AT_ONCE: Final = 300
"""Records that a purge has ended, told by one transaction, of all shards: what is due waits."""
TIDY_ENTRIES: Final = 2_048
TIDY_S: Final = 0.005
PLAN_S: Final = 1.0
"""So long at most for all shards in one turn, but for the one in hand; those left out come first in
the next. Bodies read back from the ingress take up to a second for one shard alone."""

TraceCommitted: TypeAlias = Callable[[Sequence[Batch | ResolvedBatch], float, int], None]
"""Told what a committed transaction held, how long it took, and the time."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A transaction that commits meanwhile, and what it makes true of each shard."""

    plans: Mapping[int, Plan]
    transaction: Transaction
    started_s: float


class Pipeline:
    """Moves records of the shards it owns from the ingress to their targets.

    `shards` changes only between turns or inside `fetch`, when partitions come and go: `recovery`
    makes new ones. `first_commit` is called once per shard, after its first transaction, with the
    policies by partition, `trace` after each transaction.
    """

    def __init__(
        self,
        ingress: Ingress,
        recovery: Recovery,
        publisher: Publisher,
        clock: Clock,
        pacing: Pacing,
        memory: MemoryBudget,
        metrics: Metrics,
        first_commit: Callable[[Mapping[int, Sequence[PolicyFrom]]], None],
        back_pressure: BackPressure,
        parked: ParkedRecords,
        trace: TraceCommitted | None = None,
    ) -> None:
        self.shards: dict[int, Shard] = {}
        self.is_assigned = False
        """The group has answered, be it with no partition at all."""
        self.is_lost = False
        """The group has given partitions away: the session has to end. After a broker was away its
        producer may be stuck (`proxy.publishing.kafka_transactions.ClientStuck`)."""
        self._ingress, self._recovery, self._publisher = ingress, recovery, publisher
        self._clock, self._pacing, self._first_commit = clock, pacing, first_commit
        self.memory, self._back_pressure, self._parked = memory, back_pressure, parked
        self._metrics, self._trace = TransactionMetrics(metrics), trace
        self._under_way: _UnderWay | None = None
        self._uncommitted_at_first: set[int] = set()
        self._resting, self._awake = RestingShards(), dict[int, Shard]()
        self._idle: AbstractSet[int] = frozenset()
        """To be committed in this turn, though nothing may have happened to them."""
        self.steps, self._pauses_version = metrics.steps, parked.version
        self._first_planned = self._first_tidied = 0
        """Partitions from which on the shards are planned, and tidied, next."""
        self._has_more_to_tidy = False
        self._is_too_large = False
        """More records have ended in memory than one transaction may hold while it throttles."""

    @property
    def is_disk_held(self) -> bool:
        """Whether reading is held for want of room on the disk."""
        return self._back_pressure.is_disk_held

    def is_full(self, partition: int) -> bool:
        """Whether reading of it is held, since as much waits as the setting `admission` allows."""
        return self._back_pressure.is_full(partition)

    @property
    def is_busy(self) -> bool:
        """Whether records flow, so that all else has to wait for its turn."""
        return self._pacing.is_busy

    @property
    def is_ingest_paused(self) -> bool:
        """Whether an operator wants nothing more to be read."""
        return self._back_pressure.is_ingest_paused

    def pause_ingest(self, is_paused: bool) -> None:
        """Read nothing more once a shard has caught up, or read on; counts from the next fetch."""
        self._back_pressure.is_ingest_paused = is_paused
        self._back_pressure.apply(
            self.shards, self.shards, is_memory_exceeded=self.memory.is_exceeded
        )

    def share_rates_among(self, partitions: int) -> None:
        """The ingress has so many partitions now."""
        self._parked.partitions = partitions
        self._parked.serve(len(self.shards))

    def turn(self) -> None:
        """One turn of the loop; raises SessionLost when shards must be recovered.

        1. Fetch: the ingress is read on, while the last transaction commits.
        2. Confirm: that transaction is waited for, and memory follows what it made true.
           While all shards rest, that is all.
        3. Parse and put: fetched records are stored until they are due, or end at once.
        4. Due: each shard plans which records end now.
        5. Publish: the plans become one transaction, whose commit is not waited for.
        6. Tidy: the stores do a piece of their own work; a purge looks for what is told next.
        """
        timed = self.steps.timed
        fetched = timed("fetch", self._fetch)
        timed("confirm", self.confirm)
        if self._is_too_large:
            self._take_again(fetched)
        self._clock.observe_broker(fetched.append_ms)
        at = self._clock.moment()
        self._wake(fetched, at.elapsed_ms)
        if self.shards and not self._awake:
            return
        records_available = timed("put", self._put, fetched, at)
        plans = timed("due", self._due, at, records_available)
        timed("publish", self._publish_paced, plans, at)
        timed("tidy", self._tidy, at)

    def confirm(self) -> None:
        """Wait for the transaction under way, if any, and take over what it has made true."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            done = under_way.transaction.wait()
        except GroupMoved as moved:
            log.info("the group has moved on: planned anew after the next fetch", why=str(moved))
            self._metrics.aborted(time.monotonic() - under_way.started_s)
            self._ingress.group_moved()
            return
        except Throttled as throttled:
            self._metrics.aborted(time.monotonic() - under_way.started_s)
            self._note_throttled(throttled)
            return
        took_s = under_way.transaction.committed_at_s - under_way.started_s
        self._pacing.committed(took_s)
        for (partition, plan), batch in zip(under_way.plans.items(), done, strict=True):
            self._metrics.count_purges(self.shards[partition], plan.position, batch.outcomes)
            self.shards[partition].confirm(plan, map(named_hop, batch.hops))
            last_moved = self._parked.told(partition, batch.auxiliary)
            if last_moved is not None:
                self.shards[partition].awaited_move = last_moved
        self._resting.wake(under_way.plans)
        if first := self._uncommitted_at_first & under_way.plans.keys():
            self._uncommitted_at_first -= first
            self._first_commit({p: self.shards[p].position.policies for p in first})
        now_ms = self._clock.now_ms()
        self._metrics.committed(done, took_s, now_ms)
        if self._trace is not None:
            self._trace(done, took_s, now_ms)

    def _note_throttled(self, throttled: Throttled) -> None:
        self._pacing.throttled()
        most_bytes, shards = self._pacing.most_bytes, self.shards.values()
        log.warning(
            "transaction given up, since the broker throttles: the next ones are smaller",
            why=str(throttled),
            most_bytes=most_bytes,
        )
        self._is_too_large = (
            self.memory.left_bytes(shards, most_bytes) < 0
            or sum(shard.ending for shard in shards) > self._pacing.largest_records
        )

    def _take_again(self, fetched: Fetched) -> None:
        """Recover the shards with newcomers that have ended in memory, and read these again.
        Otherwise all of them must end in one transaction."""
        self._is_too_large = False
        partitions = [partition for partition, shard in self.shards.items() if shard.ending]
        for partition in partitions:
            fetched.records.pop(partition, None)
            fetched.ends.pop(partition, None)
        self._drop(partitions)
        self._ingress.rewind(self.take_over(partitions))

    def take_over(self, partitions: Sequence[int]) -> dict[int, int]:
        """Newly assigned: recover their shards; the offsets from which to read them on."""
        shards = self._recovery.take_over(partitions)
        self.shards.update(shards)
        self._parked.serve(len(self.shards))
        self._uncommitted_at_first.update(shards)
        self.is_assigned = True
        return {partition: shard.next_offset for partition, shard in shards.items()}

    def hand_over(self, partitions: Iterable[int]) -> None:
        """Another worker gets these: commit how far they were read, and that nothing that has ended
        is needed any more; write local state, close. While the broker throttles nothing is
        committed, so the next owner reads more again."""
        self.confirm()
        owned = [p for p in partitions if p in self.shards]
        at = self._clock.moment()
        plans = {p: self.shards[p].plan(at.now_ms, 0) for p in owned if not self._is_replaying(p)}
        moved = {
            p: plan
            for p, plan in plans.items()
            if self._has_moved(p, plan.position.next_offset)
            or plan.position.floor > self.shards[p].position.floor
        }
        if not self._pacing.is_throttled:
            self._publish(moved, at)
            self.confirm()
        self._drop(owned)

    def lose(self, partitions: Iterable[int]) -> None:
        """These are gone: nothing more is committed, local state is written and closed."""
        self.is_lost = True
        self.confirm()
        self._drop([p for p in partitions if p in self.shards])

    def abandon(self) -> None:
        """Lose all shards, and the transaction under way: the broker knows what became of it."""
        self._under_way = None
        self._drop(list(self.shards))

    def _fetch(self) -> Fetched:
        wait_s, most = self._wait_ms() / 1000, self._pacing.fetch_records(len(self._awake))
        is_idle = not self._awake and not self._pacing.is_reading_throttled
        return self._ingress.fetch(wait_s, most, is_busy=self._pacing.is_gathering, is_idle=is_idle)

    def _wake(self, fetched: Fetched, elapsed_ms: int) -> None:
        """Find the shards to be looked at in this turn: all when pauses have changed, or while
        reading is held until some have written."""
        if self.memory.is_exceeded or self._pauses_version != self._parked.version:
            self._resting.wake_all()
        self._pauses_version = self._parked.version
        self._idle = self._pacing.take_idle(self.shards, elapsed_ms)
        self._resting.wake(self._idle)
        self._resting.wake_rested(elapsed_ms)
        self._resting.wake(fetched.records)
        self._resting.wake(p for p, end in fetched.ends.items() if self._is_beyond(p, end))
        self._awake = self._resting.awake(self.shards)

    def _put(self, fetched: Fetched, at: Moment) -> int:
        """Each shard ingests what was fetched for it, and what has been waiting since before; how
        many more records the rate lets end then."""
        ending_anyway = sum(shard.ending for shard in self._awake.values())
        records_available = self._pacing.records_available(ending_anyway, at.elapsed_ms)
        self._back_pressure.look_at_disk(at.elapsed_ms)
        bytes_available = self.memory.left_bytes(self._awake.values(), self._pacing.most_bytes)
        for partition, shard in self._awake.items():
            records = fetched.records.get(partition, [])
            if records or shard.waiting:
                ending, ending_bytes = shard.ending, shard.ending_bytes
                max_records = min(self._pacing.largest_records, ending + max(0, records_available))
                max_bytes = ending_bytes + max(0, bytes_available)
                shard.ingest(records, at.now_ms, max_records, max_bytes)
                records_available -= shard.ending - ending
                bytes_available -= shard.ending_bytes - ending_bytes
            if partition in fetched.ends:
                shard.reach(fetched.ends[partition])
            if records or self._back_pressure.is_full(partition):
                self._back_pressure.look_at_limits(partition, shard)
        heaviest = self.memory.look(self.shards, self._awake.values(), self._resting.held)
        if heaviest is not None:
            self._resting.wake([heaviest])
        self._back_pressure.apply(
            self.shards, self._awake, is_memory_exceeded=self.memory.is_exceeded
        )
        return records_available

    def _due(self, at: Moment, records_available: int) -> dict[int, Plan]:
        """One transaction's plans, once the next may begin; of pending records so many as are
        available. Shards for which nothing is left come first in the one after it."""
        if not self._pacing.may_begin(at.elapsed_ms):
            return {}
        until_s = time.monotonic() + PLAN_S
        records_left, sweep_left = self._pacing.next_records, SWEPT_AT_ONCE
        plans, is_cut = dict[int, Plan](), False
        transaction = self.memory.for_transaction(
            self._awake.values(), self._resting.held, self._pacing.most_bytes
        )
        order = _rotated(self._awake, self._first_planned)
        for partition in order:
            if self._may_be_worth_it(partition, at):
                shard = self.shards[partition]
                if plans and not is_cut and (not records_left or time.monotonic() > until_s):
                    records_left, is_cut = 0, True
                    self._first_planned = partition
                max_records = min(records_left, shard.ending + max(0, records_available))
                sweep = SweepLimits(sweep_left, records_left)
                plan = transaction.plan(shard, at.now_ms, max_records, sweep)
                plans[partition] = plan = self._parked.planned(plan, shard, at.now_ms)
                records_left = max(0, records_left - plan.records)
                sweep_left -= len(plan.swept)
                records_available -= plan.records - shard.ending - len(plan.swept)
        if not is_cut and any(plan.records for plan in plans.values()):
            self._first_planned = order[1] if len(order) > 1 else 0
        return plans

    def _publish_paced(self, plans: Mapping[int, Plan], at: Moment) -> None:
        chosen = {
            p: plan
            for p, plan in plans.items()
            if p in self._idle
            or self._pacing.is_worth_it(
                plan.records, at.elapsed_ms, has_moved=self._has_moved(p, plan.position.next_offset)
            )
        }
        self._publish(chosen, at)

    def _publish(self, plans: Mapping[int, Plan], at: Moment) -> None:
        """One transaction of these plans, whose commit is not waited for."""
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
        if not self._back_pressure.may_write(at.elapsed_ms):
            return
        until_s = time.monotonic() + TIDY_S
        try:
            for partition in _rotated(self._resting.untidy(self._awake), self._first_tidied):
                shard = self.shards[partition]
                self._first_tidied = partition + 1
                has_committed = partition not in self._uncommitted_at_first
                if shard.maintain(TIDY_ENTRIES, at.elapsed_ms):
                    self._has_more_to_tidy = True
                elif has_committed and not self._parked.is_needed(shard, at.now_ms):
                    self._resting.let_rest(partition, shard, at)
                if time.monotonic() > until_s:
                    self._has_more_to_tidy = True
                    break
            else:
                self._back_pressure.disk_has_space()
        except StorageFull as full:
            self._back_pressure.disk_full(full, at.elapsed_ms)

    def _drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            shard = self.shards.pop(partition)
            self._resting.wake([partition])
            self._back_pressure.forget(partition)
            self._parked.forget(partition)
            self._parked.serve(len(self.shards))
            _flush_and_close(partition, shard)

    def _wait_ms(self) -> int:
        """How long the next fetch may wait for a first record."""
        now_ms, elapsed_ms = self._clock.moment()
        rate_ms = min(self._pacing.rate_wait_ms(elapsed_ms), LONGEST_WAIT_MS)
        awake = self._resting.awake(self.shards).values()
        if (awake and self._has_more_to_tidy) or any(shard.is_sweeping for shard in awake):
            return 1
        if rate_ms or any(shard.waiting for shard in awake):
            return max(1, rate_ms)
        until_ms = now_ms + self._resting.wait_ms(elapsed_ms, LONGEST_WAIT_MS)
        for shard in awake:
            if shard.state is State.READY:
                due_ms = shard.next_due_ms(until_ms)
                until_ms = until_ms if due_ms is None else min(until_ms, due_ms)
        return max(0, until_ms - now_ms, self._pacing.wait_ms(elapsed_ms))

    def _may_be_worth_it(self, partition: int, at: Moment) -> bool:
        """Whether a plan of the shard could be; a plan costs ten times as much as this look."""
        shard = self.shards[partition]
        if shard.state is State.REPLAYING:
            return False
        has_moved = self._has_moved(partition, shard.next_offset)
        return (
            shard.ending > 0
            or partition in self._idle
            or shard.is_sweeping
            or self._parked.is_needed(shard, at.now_ms)
            or self._pacing.is_worth_it(0, at.elapsed_ms, has_moved=has_moved)
            or (shard.state is State.READY and shard.next_due_ms(at.now_ms) is not None)
        )

    def _is_beyond(self, partition: int, end_offset: int) -> bool:
        """Whether the partition ends behind all that the shard has read."""
        return partition in self.shards and end_offset > self.shards[partition].next_offset

    def _is_replaying(self, partition: int) -> bool:
        return self.shards[partition].state is State.REPLAYING

    def _has_moved(self, partition: int, next_offset: int) -> bool:
        return (
            next_offset > self.shards[partition].position.next_offset
            or partition in self._uncommitted_at_first
        )


def _rotated(partitions: Iterable[int], first: int) -> list[int]:
    """In order, from the first one at or beyond `first` on."""
    return sorted(partitions, key=lambda partition: (partition < first, partition))


def _flush_and_close(partition: int, shard: Shard) -> None:
    try:
        shard.flush_and_close()
    except StorageError as error:
        log.error(
            "local state not written; the broker has it all", partition=partition, why=str(error)
        )
    log.info("shard given up", partition=partition, next_offset=shard.position.next_offset)
