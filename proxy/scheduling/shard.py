"""A shard: all state of an ingress partition, and its next transaction.

The shard is pure, and keeps the rules of docs/exactly-once.md. `plan` does not change the shard.
So a plan whose transaction was aborted can be made again. `confirm` applies a committed plan.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol.body import IngressPartition, Message
from proxy.protocol.outcomes import Outcome, Rejection
from proxy.protocol.parsed import ParsedRecord, RejectedHop
from proxy.protocol.position import LAST_OFFSET, Position, Watermark
from proxy.protocol.request_reader import ParsedBatch, ReadersByOffset
from proxy.scheduling.admission import Admission, IngestLimits
from proxy.scheduling.batch import Batch, OutgoingRecord, Plan, SweptEntry, TransactionBuffer
from proxy.scheduling.half_messages import ReadBack, record_of
from proxy.scheduling.missed_moves import NONE_MISSED, MissedMoves
from proxy.scheduling.purges import IDLE, Sweep, SweepLimits
from storage.ids.register import Register
from storage.store import (
    PEEK_BYTES,
    Entry,
    Key,
    Named,
    Scanned,
    Store,
    TargetCounts,
    Wants,
    bodies_bytes,
)

PARSED_AT_ONCE: Final = 2048
"""Number of records that are parsed, and whose ids are looked up, together."""
FLUSH_EVERY_MS: Final = 20_000
WORTH_A_FLUSH: Final = 4_096
"""A periodic flush is made if a restart would have to read at least this many offsets again."""
FLUSHED_AT_ONCE: Final = 32_768
"""A shard that catches up flushes once a restart would have to read this many offsets again."""

CountIntake: TypeAlias = Callable[[IngressPartition, Sequence[Message], ParsedBatch], None]
"""Called with ingested records and their requests. After a takeover some records may come again."""

_fires_ms, _offset_of = itemgetter(0), itemgetter(1)


class State(Enum):
    """The stage that a shard has reached since its takeover."""

    REPLAYING = "replaying"
    CATCHING_UP = "catching-up"
    READY = "ready"


class _Due(NamedTuple):
    """The due part of a plan: all entries and check-backs at or below the key `upto`."""

    upto: Watermark
    entries: Sequence[Entry] = ()
    outcomes: Sequence[Outcome] = ()
    auxiliary: Sequence[OutgoingRecord] = ()
    taken_back: int = 0
    size_bytes: int = 0


class View(NamedTuple):
    """The state of a shard that `Shard.look` noted in this turn, after ingestion."""

    fires_ms: int
    """Time of the next entry or half-message event, at most `until_ms` of `look`."""
    kept_bytes: int
    """Memory of the memtables, and of records that cannot be ingested yet."""
    peeked_bytes: int


class Shard:
    """All state of an ingress partition. `position` is committed. `barrier` is the end at takeover.
    The watermark stands still until the shard reaches `barrier` (docs/exactly-once.md, rule 5)."""

    def __init__(
        self,
        ingress: IngressPartition,
        position: Position,
        store: Store,
        readers: ReadersByOffset,
        read_from: int,
        barrier: int,
        register: Register,
        read_back: ReadBack,
        missed: MissedMoves,
        count_intake: CountIntake,
    ) -> None:
        assert read_from <= position.next_offset, (read_from, position)
        self.ingress = ingress
        self.position = position
        self.store = store
        self.next_offset = read_from
        self.barrier = barrier
        self.backlog: list[Message] = []
        self.waits_for_clock = False
        self.view = View(0, 0, 0)
        self.read_ms = self._next_flush_ms = 0
        self.register, self._readers, self.read_back = register, readers, read_back
        self.missed, self._count_intake = missed, count_intake
        self._stored_below = store.covered
        self.admission = Admission(ingress, position, readers, register, read_back, missed)
        self.half_messages, self.purges = self.admission.half_messages, self.admission.purges
        self._sweep = Sweep(self.purges, self.scan, self._delete, read_back)
        self._identities = self.admission.identities
        self._identities.load_half_messages(read_from)
        self.ending = self.ending_bytes = 0
        """Number and bytes of records in `admission.buffer`. The next transaction ends them."""
        self._settle()

    def _settle(self) -> None:
        self.has_moved = self.next_offset > self.position.next_offset
        """Records were ingested since the last commit."""
        self.state = self._state_now()

    def _state_now(self) -> State:
        if self.next_offset < self.position.next_offset:
            return State.REPLAYING
        return State.READY if self.next_offset >= self.barrier else State.CATCHING_UP

    def look(self, until_ms: int) -> View:
        due_ms = self.next_fires_ms(until_ms) if self.state is State.READY else None
        backlog, store = self.backlog, self.store
        kept_bytes = self.memtable_bytes
        if backlog:
            kept_bytes += sum(len(message.value() or b"") for message in backlog)
        self.view = View(until_ms if due_ms is None else due_ms, kept_bytes, store.peeked_bytes)
        return self.view

    @property
    def settled_offset(self) -> int:
        """Records below this offset are ingested and committed, so they may go to disk."""
        return min(self.next_offset, self.position.next_offset)

    @property
    def memtable_bytes(self) -> int:
        """Approximate bytes of memory that `request_flush` frees."""
        held_bytes = self.half_messages.held_bytes
        return self.store.memtable_bytes + self.register.memtable_bytes + held_bytes

    @property
    def is_sweeping(self) -> bool:
        purges = self.purges
        is_under_way = bool(purges.offsets) and purges.first_unswept is not None
        return is_under_way and self.state is State.READY

    def pending(self) -> int:
        """Count the pending records, without undecided half messages."""
        return self.store.pending() - self.register.tombstones_by_target().total

    def pending_by_target(self) -> TargetCounts:
        """Count the pending records by target. If there are many targets, some share a count."""
        return self.store.pending_by_target().without(self.register.tombstones_by_target())

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Scan as `Store.scan`, without entries that were cancelled or replaced."""
        found, upto = self.store.scan(after, until_ms, wants, max_entries, max_bytes)
        deleted = self.register.deleted([entry[:2] for entry in found])
        return Scanned([entry for entry in found if entry[:2] not in deleted], upto)

    def is_purged(self, offset: int, target: str, due_ms: int) -> bool:
        return self.purges.ending(offset, target, due_ms) is not None

    def named(self, ident: bytes) -> Named | None:
        return self.register.find([ident]).get(ident)

    def parsed(self, message: Message) -> ParsedRecord:
        return self._readers.read(message)

    def refusal_now(self, message: Message) -> Rejection | None:
        parsed = self._readers.read(message, LAST_OFFSET)
        parsed = parsed.rejection if isinstance(parsed, RejectedHop) else parsed
        return parsed if isinstance(parsed, Rejection) else None

    def next_fires_ms(self, until_ms: int) -> int | None:
        due_ms = self.store.next_fires_ms(until_ms)
        if not self.half_messages.idents:
            return due_ms
        event_ms = self.half_messages.next_ms()
        if event_ms is None or event_ms > until_ms:
            return due_ms
        return event_ms if due_ms is None else min(event_ms, due_ms)

    def ingest(
        self,
        messages: Sequence[Message],
        now_ms: int,
        max_records: int,
        max_bytes: int = PEEK_BYTES,
    ) -> None:
        """Ingest records in offset order. If a record must wait for room or for the clock, it and
        all records after it stay in `backlog` (docs/exactly-once.md, rule 7)."""
        messages = [*self.backlog, *messages] if self.backlog else messages
        upto = messages[-1].offset() + 1 if messages else 0
        if self.missed.chunks and messages and messages[0].offset() < self.position.next_offset:
            messages = self.missed.without(messages)
        self.backlog = []
        self.waits_for_clock = False
        start = 0
        while start < len(messages):
            run = messages[start : start + PARSED_AT_ONCE]
            taken = self._ingest_run(run, now_ms, max_records, max_bytes)
            if not taken:
                self.backlog = list(messages[start:])
                self._settle()
                return
            start += taken
        self.next_offset = max(self.next_offset, upto)
        self._settle()

    def reach(self, end_offset: int) -> None:
        """Note that the partition has no more records below `end_offset`."""
        if not self.backlog and end_offset > self.next_offset:
            self.next_offset = end_offset
            self._settle()

    def plan(
        self, now_ms: int, max_records: int, max_bytes: int = PEEK_BYTES, sweep: SweepLimits = IDLE
    ) -> Plan:
        """Plan the next transaction: records that ended at ingestion, then due entries in the order
        of their keys. `max_bytes` limits the due bodies. An entry with a larger body goes alone."""
        buffer, is_ready = self.admission.buffer, self.state is State.READY
        watermark = before = self.position.watermark
        due, swept = _Due(watermark), tuple[SweptEntry, ...]()
        max_pending = max_records - self.ending
        if is_ready and now_ms >= before.fires_ms and max_pending > 0 and max_bytes > 0:
            due = self._due(now_ms, max_pending, max_bytes)
            watermark = max(watermark, due.upto)
        if self.purges.offsets and is_ready:
            swept = tuple(self._sweep.piece(before, watermark, sweep.beside(len(due.entries))))
        deliveries = [*buffer.deliveries, *due.entries] if buffer.deliveries else due.entries
        next_offset = max(self.next_offset, self.position.next_offset)
        floor = self._floor(deliveries)
        missed = self.missed.planned(next_offset, floor) if self.missed.chunks else NONE_MISSED
        progress = self._sweep.progress_after(swept) if swept else self.purges.progress
        position = self.position.advanced(watermark, next_offset, floor, missed.upto, progress)
        outcomes = *buffer.outcomes, *due.outcomes, *(one.outcome for one in swept)
        auxiliary = *buffer.auxiliary, *due.auxiliary, *missed.records
        dead_letters = tuple(buffer.dead_letters)
        batch = Batch(self.ingress, deliveries, dead_letters, outcomes, auxiliary)
        return Plan(batch, position, due.taken_back, due.size_bytes, swept)

    def confirm(self, plan: Plan, hops: Iterable[tuple[bytes, int]] = ()) -> None:
        """Apply a committed plan. For each rewritten entry, `hops` has the name (id or receipt)
        under which its successor is awaited, and the entry's offset."""
        assert plan.position.next_offset >= self.position.next_offset, (plan, self.position)
        self.position = plan.position
        watermark = plan.position.watermark
        self.store.advance(*watermark)
        self.register.advance(*watermark)
        if self.missed.chunks:
            self.missed.confirm(plan.position.missed_upto, plan.position.floor)
        self._identities.position = self.purges.position = plan.position
        self.half_messages.position = plan.position
        if self.half_messages.idents:
            self.half_messages.advance()
        if self.purges.offsets:
            self._sweep.note_written(plan.swept)
            self.purges.forget(self.next_offset)
        self._identities.hopping.update(hops)
        if self.ending:
            self.admission.buffer, self.ending, self.ending_bytes = TransactionBuffer(), 0, 0
        self._settle()

    def maintain(self, budget_entries: int, elapsed_ms: int) -> bool:
        """Do a bounded piece of flushes and other work on files. Return True if more is left."""
        settled = self.settled_offset
        if self._wants_flush(settled, elapsed_ms):
            self._next_flush_ms = elapsed_ms + FLUSH_EVERY_MS
            self.store.request_flush()
            self.register.request_flush()
        if self.purges.offsets:
            self._sweep.look_ahead(self.position.watermark)
        more = self.store.maintain(settled, budget_entries)
        in_store = min(settled, self.store.covered)
        return self.register.maintain(in_store, self.position.floor) or more

    def request_flush(self) -> None:
        """Let `maintain` write the memtables. Forget the bodies of half messages now."""
        self.store.request_flush()
        self.register.request_flush()
        self.half_messages.forget_bodies()

    def flush_and_close(self) -> None:
        try:
            self.store.flush(self.settled_offset)
            in_store = min(self.settled_offset, self.store.covered)
            self.register.flush(in_store, self.position.floor)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files without a flush."""
        self.register.close()
        self.store.close()

    def _wants_flush(self, settled: int, elapsed_ms: int) -> bool:
        """Return whether a restart would have too much to read again. A shard that catches up does
        not wait for FLUSH_EVERY_MS, so that a restart has little to read again."""
        covered = min(self.store.covered, self.register.covered)
        to_read_again = settled - max(covered, self.position.floor)
        if self.state is not State.READY:
            return to_read_again >= FLUSHED_AT_ONCE
        return to_read_again >= WORTH_A_FLUSH and elapsed_ms >= self._next_flush_ms

    def _floor(self, deliveries: Sequence[Entry]) -> int:
        """Return the next floor: at or below all deliveries, because each may become a hop. The
        floor stands still until the shard is ready (docs/exactly-once.md, rule 4)."""
        if self.state is not State.READY:
            return self.position.floor
        floor = min(map(_offset_of, deliveries), default=self.next_offset)
        floor = min(floor, self.store.floor(self.next_offset))
        if self._identities.hopping or self.half_messages.idents or self.purges.offsets:
            floor = self._identities.lowest(floor)
        return max(self.position.floor, self.register.lowered(floor))

    def _due(self, now_ms: int, max_records: int, max_bytes: int) -> _Due:
        found, is_all = self.store.due(now_ms, max_records, max_bytes)
        upto = Watermark(now_ms, LAST_OFFSET) if is_all else Watermark(*found[-1][:2])
        auxiliary: list[OutgoingRecord] = []
        if self.half_messages.idents:
            events, is_all = self.half_messages.due(upto, max_records)
            if not is_all:
                upto = Watermark(events[-1].fires_ms, events[-1].offset)
                found = [entry for entry in found if entry[:2] <= upto]
            auxiliary = [one for event in events if (one := record_of(self.ingress, event))]
        taken_back, outcomes = 0, list[Outcome]()
        if tombstones := self.register.tombstones(self.position.watermark, upto):
            kept = [entry for entry in found if entry[:2] not in tombstones]
            taken_back, found = len(found) - len(kept), kept
        if self.purges.offsets:
            found, outcomes = self.purges.without_ended(found)
        size_bytes = bodies_bytes(found) + sum(len(one.value or b"") for one in auxiliary)
        return _Due(upto, found, outcomes, auxiliary, taken_back, size_bytes)

    def _delete(self, key: Key, target: str) -> None:
        self.register.add_tombstone(self.next_offset, key, target)

    def _ingest_run(
        self, run: Sequence[Message], now_ms: int, max_records: int, max_bytes: int
    ) -> int:
        """Ingest the first records that share a policy, while there is room. Return how many."""
        first, position, committed = run[0].offset(), self.position, self.position.next_offset
        if position.set_back is not None and first < position.set_back.below:
            committed = position.set_back.below
        reader, until = self._readers.at(first)
        is_replay = first < committed
        if is_replay:
            until = min(until, committed)
        if run[-1].offset() >= until:
            run = [message for message in run if message.offset() < until]
        batch, watermark = reader.read_batch(run), position.ended_upto(first)
        entries, taken = self._all_pend(batch, watermark), len(run)
        if entries is None:
            limits = IngestLimits(now_ms, max_records, max_bytes, watermark, is_replay)
            taken, buffer = self.admission.admit(run, batch, limits), self.admission.buffer
            entries, self.waits_for_clock = self.admission.entries, self.admission.waits_for_clock
            self.ending, self.ending_bytes = len(buffer), buffer.size_bytes
        if entries and entries[0][1] < self._stored_below:
            entries = [entry for entry in entries if entry[1] >= self._stored_below]
        self.store.put(entries)
        if taken:
            last = run[taken - 1]
            self.next_offset, self.read_ms = last.offset() + 1, last.timestamp()[1]
            if not is_replay:
                self._count_intake(self.ingress, run[:taken], batch)
        return taken

    def _all_pend(self, batch: ParsedBatch, watermark: Watermark) -> Sequence[Entry] | None:
        """Return the entries if all records just become pending, else None. This path is fast."""
        usual = batch.usual()
        if usual is None or min(map(_fires_ms, usual.entries)) <= watermark.fires_ms:
            return None
        if usual.idents:
            fires_ms, offsets, targets, _bodies = zip(*usual.named, strict=True)
            if not self.register.put_if_new(usual.idents, fires_ms, offsets, targets):
                return None
        return usual.entries
