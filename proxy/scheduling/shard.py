"""All state of a partition: what it takes in, plans, and confirms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol.body import GONE_BODY, IngressPartition, Message, delivery_of, is_stub
from proxy.protocol.outcomes import Outcome, Rejection
from proxy.protocol.parsed import ParsedRecord, RejectedHop, Scheduled
from proxy.protocol.position import LAST_OFFSET, NEVER_MS, Position, PurgeProgress, Watermark
from proxy.protocol.request_reader import ReadersByOffset
from proxy.scheduling.admission import Admission, CountIntake, IngestLimits
from proxy.scheduling.batch import AuxiliaryRecord, Batch, Plan, SweptEntry, TransactionBuffer
from proxy.scheduling.half_messages import (
    HalfMessageEvent,
    HalfMessages,
    ReadBack,
    UndecidedMessage,
    record_of,
)
from proxy.scheduling.identities import Identities, MissedMoves, Recalls
from proxy.scheduling.purges import NOTHING_YET, Purges
from storage.register import Named, Register
from storage.store import PEEK_BYTES, Entry, Key, Scanned, Store, TargetCounts, Wants, bodies_bytes

# Looks through a shard's store for what purges have ended, a bounded piece at a time.
#
# See docs/exactly-once.md#purges. One pass for each purge: what it has ended gets its outcome,
# with the transactions that are made anyway; what was told before, and still lies in the store
# after a takeover, is deleted there.

LOOKED_AT: Final = 300
"""For one piece: about what a transaction tells, so that each turn has as much to do."""
LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
END: Final[Key] = (NEVER_MS, LAST_OFFSET)
MOST_JUMPS: Final = 16
JUMP_OFFSETS: Final = 500
"""Bodies left in Kafka are read again: so many places of the ingress for one piece."""

Scan: TypeAlias = Callable[[Key, int, Wants, int, int], Scanned]
Delete: TypeAlias = Callable[[Key, str], None]


class SweepLimits(NamedTuple):
    """What one shard's next transaction may tell: so many `swept`, and `in_all` with those that
    pend."""

    swept: int
    in_all: int

    def beside(self, pending: int) -> int:
        """How many, beside so many that pend."""
        return min(self.swept, self.in_all - pending)


IDLE: Final = SweepLimits(0, 0)


class Sweep:
    """The pass through the store of one shard, and its place there.

    `scan` shows what is not deleted yet, `delete` lets go of one entry.
    """

    def __init__(self, purges: Purges, scan: Scan, delete: Delete, read_back: ReadBack) -> None:
        self._purges, self._scan, self._delete = purges, scan, delete
        self._read_back = read_back
        self._below: int | None = None
        self._wants: Wants = None
        self._after: Key = NOTHING_YET
        self._piece: list[SweptEntry] = []
        self._offered = 0
        """How many of these the transaction under way is to tell."""

    @property
    def is_under_way(self) -> bool:
        """Whether there is anything to look for."""
        return self._purges.first_unswept is not None

    def piece(self, ended: Key, beyond: Key, most: int) -> Sequence[SweptEntry]:
        """What the next transaction is to tell, `most` at most; the same again until it is `told`.

        ended: the committed watermark. beyond: the one to be committed; what fires by then ends
        with it, if it is, and must be found again, if not."""
        if most <= 0:
            return ()
        if self._piece:
            self._piece = [swept for swept in self._piece if swept.key > ended]
        if not self._piece and self.is_under_way:
            self._look(ended)
        offered = [swept for swept in self._piece if swept.key > beyond][:most]
        self._offered = len(offered)
        return offered

    def look_ahead(self, ended: Key) -> None:
        """While a transaction commits, look for what the next one is to tell. ended: as above."""
        if self._piece and len(self._piece) <= self._offered and self._after < END:
            self._look(ended)

    def progress_after(self, piece: Sequence[SweptEntry]) -> PurgeProgress | None:
        """What is committed with this piece."""
        progress = self._purges.progress
        if progress is None or not piece:
            return progress
        return PurgeProgress(progress.at, Watermark(*piece[-1].key))

    def told(self, piece: Sequence[SweptEntry]) -> None:
        """This piece is committed."""
        if piece:
            for swept in piece:
                self._delete(swept.key, swept.target)
            self._purges.progress = self.progress_after(piece)
            last = piece[-1].key
            self._piece = [swept for swept in self._piece if swept.key > last]
            self._offered = 0

    def _look(self, ended: Key) -> None:
        """A look at what comes next: what was told before is deleted, the rest is the piece."""
        below = self._pass()
        after = max(self._after, ended)
        if after >= END:
            self._purges.swept(below)
            self._below = None
            return
        found = self._scan(after, NEVER_MS, self._wants, LOOKED_AT, LOOKED_AT_BYTES)
        entries, self._after = with_bodies(found, self._read_back)
        for entry in entries:
            self._take(entry, below)

    def _pass(self) -> int:
        """The purges below this offset are looked for together: all that were told, and the first
        that was not."""
        if self._below is None:
            progress = self._purges.progress
            self._below = 1 + (self._purges.last if progress is None else progress.at)
            self._after = NOTHING_YET
            sought = self._purges.unswept(self._below)
            self._wants = cache(lambda target: any(purge.is_for(target) for purge in sought))
        return self._below

    def _take(self, entry: Entry, below: int) -> None:
        key, target, delivery = entry[:2], entry[2], delivery_of(entry)
        at = self._purges.ending(entry[1], target, delivery.due_ms)
        if at is None or at >= below:
            return
        if self._purges.is_told(at, key):
            self._delete(key, target)
        else:
            self._piece.append(SweptEntry(key, target, self._purges.outcome(delivery, at)))


def with_bodies(found: Scanned, read_back: ReadBack) -> Scanned:
    """With the bodies that were left in Kafka; the first ones, where all would take long."""
    entries, upto = found
    if not any(is_stub(entry[3]) for entry in entries):
        return found
    while len(entries) > 1 and _jumps(entries) > MOST_JUMPS:
        entries = entries[: len(entries) // 2]
        upto = entries[-1][:2]
    parsed = read_back(sorted(entry[1] for entry in entries if is_stub(entry[3])))
    return Scanned([_with_body(entry, parsed.get(entry[1])) for entry in entries], upto)


def _jumps(entries: Sequence[Entry]) -> int:
    """How many places of the ingress their records lie at."""
    offsets = sorted(entry[1] for entry in entries)
    return 1 + sum(after - before > JUMP_OFFSETS for before, after in pairwise(offsets))


def _with_body(entry: Entry, parsed: ParsedRecord | None) -> Entry:
    if not is_stub(entry[3]):
        return entry
    return parsed.entry if isinstance(parsed, Scheduled) else (*entry[:3], GONE_BODY)


# One shard: what of an ingress partition is pending, and what the next transaction ends.
#
# Pure: it is handed fetched records, the time, a store and a register of ids, and keeps the rules
# of docs/exactly-once.md. Nothing counts as done until `confirm`: a plan that was not committed
# is made again.

PARSED_AT_ONCE: Final = 2048
"""What is known of their ids is asked for together."""
FLUSH_EVERY_MS: Final = 20_000
WORTH_A_FLUSH: Final = 4_096
"""So often what came since is written, if a restart would have so many offsets to read again."""
FLUSHED_AT_ONCE: Final = 32_768
"""With so many it is written whenever, while a shard catches up."""

_offset_of = itemgetter(1)


class State(Enum):
    """Where a shard stands between takeover and firing."""

    REPLAYING = "replaying"
    CATCHING_UP = "catching-up"
    READY = "ready"


class Shard:
    """All state of one ingress partition.

    `position` is what the broker has committed, `read_from` the first offset that will be
    handed to `ingest`, `barrier` the end of the partition as it was at takeover: until it is
    reached the watermark stands still (docs/exactly-once.md, rule 5).
    """

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
        self.waiting: list[Message] = []
        self.waits_for_clock = False
        self.read_ms = self._next_flush_ms = 0
        self._register, self._readers, self.read_back = register, readers, read_back
        self._stored_below = store.covered
        self.half_messages = HalfMessages(read_back, position.watermark, position.set_back)
        self.purges = Purges(ingress, register, position)
        self._sweep = Sweep(self.purges, self.scan, self._delete, read_back)
        self._identities = Identities(register, self.half_messages, self.purges, position)
        self._identities.load_half_messages(read_from)
        self._missed = missed
        recalls = Recalls(read_back, self._identities, missed)
        self._admission = Admission(
            ingress,
            readers,
            self._identities,
            self.half_messages,
            recalls,
            self.purges,
            missed,
            count_intake,
        )

    @property
    def state(self) -> State:
        if self.next_offset < self.position.next_offset:
            return State.REPLAYING
        return State.READY if self.next_offset >= self.barrier else State.CATCHING_UP

    @property
    def settled_offset(self) -> int:
        """Every record below is both ingested here and committed: it may go to disk."""
        return min(self.next_offset, self.position.next_offset)

    @property
    def ending(self) -> int:
        """How many records end with the next transaction, since they were due when ingested."""
        return len(self._admission.buffer)

    @property
    def ending_bytes(self) -> int:
        """What the bodies and values of these take."""
        return self._admission.buffer.size_bytes

    @property
    def waiting_bytes(self) -> int:
        """What the values take of the records that cannot be ingested yet."""
        waiting = self.waiting
        return sum(len(message.value() or b"") for message in waiting) if waiting else 0

    @property
    def memtable_bytes(self) -> int:
        """About what `request_flush` would take out of memory."""
        held_bytes = self.half_messages.held_bytes
        return self.store.memtable_bytes + self._register.memtable_bytes + held_bytes

    @property
    def is_sweeping(self) -> bool:
        """Whether records that a purge has ended are still looked for."""
        return self._sweep.is_under_way and self.state is State.READY

    @property
    def awaited_move(self) -> int | None:
        """The entry whose move, written here last, was not read yet; None where all moves were."""
        return self._admission.awaited_move

    @awaited_move.setter
    def awaited_move(self, entry_offset: int) -> None:
        self._admission.awaited_move = entry_offset

    @property
    def last_held(self) -> Mapping[int, int]:
        """By the end of a pause, or IS_PARKED: the offset of the last record that was read here to
        wait for that, or in its queue."""
        return self._identities.last_held

    def pending(self) -> int:
        """How many records will fire, as far as is known; undecided half messages are none."""
        return self.store.pending() - self._register.tombstones_by_target().total

    def pending_by_target(self) -> TargetCounts:
        """How many of them for each target; by name for a bounded number of them."""
        return self.store.pending_by_target().without(self._register.tombstones_by_target())

    def pending_bytes(self) -> int:
        """What waits in the store, in bytes; what was cancelled or replaced too, until its time."""
        return self.store.pending_bytes()

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """As `Store.scan`, without entries that were cancelled or replaced."""
        found, upto = self.store.scan(after, until_ms, wants, max_entries, max_bytes)
        deleted = self._register.deleted([entry[:2] for entry in found])
        return Scanned([entry for entry in found if entry[:2] not in deleted], upto)

    def undecided_beyond(self, offset: int, most: int) -> list[UndecidedMessage]:
        """The first half messages beyond `offset` that nobody has decided yet."""
        idents = self.half_messages.beyond(offset, most)
        rows = self._register.find(ident for _, ident, _ in idents)
        return [
            UndecidedMessage(at, ident, rows[ident].due_ms, rows[ident].target, size_bytes)
            for at, ident, size_bytes in idents
            if ident in rows
        ]

    def is_purged(self, offset: int, target: str, due_ms: int) -> bool:
        """Whether a purge has ended what waits at this offset, told or not."""
        return self._identities.is_purged(offset, target, due_ms)

    def named(self, ident: bytes) -> Named | None:
        """What is known of an id."""
        return self._register.find([ident]).get(ident)

    def parsed(self, message: Message) -> ParsedRecord:
        """What a record of this partition asks for, the same as when it was ingested."""
        return self._readers.read(message)

    def refusal_now(self, message: Message) -> Rejection | None:
        """Why the settings of now would refuse this record, if they would."""
        parsed = self._readers.read(message, LAST_OFFSET)
        parsed = parsed.rejection if isinstance(parsed, RejectedHop) else parsed
        return parsed if isinstance(parsed, Rejection) else None

    def has_missed(self, offset: int) -> bool:
        """Whether this record is a move that came too late."""
        return offset in self._missed

    def next_due_ms(self, until_ms: int) -> int | None:
        """When something is to happen at or before `until_ms`, else None."""
        event_ms = self.half_messages.next_ms()
        due_ms = self.store.next_due_ms(until_ms)
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
        """Take records in offset order; keep in `waiting` what the next transaction cannot hold.

        `max_records`, and about `max_bytes`, may end as they are ingested. A record due by a
        watermark that this machine's clock has not reached waits too (docs/exactly-once.md, rule
        7).
        """
        messages = [*self.waiting, *messages] if self.waiting else messages
        upto = messages[-1].offset() + 1 if messages else 0
        if self._missed and messages and messages[0].offset() < self.position.next_offset:
            messages = self._missed.without(messages)
        self.waiting = []
        self.waits_for_clock = False
        start = 0
        while start < len(messages):
            limits = self._limits(messages[start].offset(), now_ms, max_records, max_bytes)
            taken = self._ingest_run(messages, start, limits)
            if taken == start:
                self.waiting = list(messages[start:])
                return
            start = taken
        self.next_offset = max(self.next_offset, upto)

    def reach(self, end_offset: int) -> None:
        """The partition has no records between what was ingested and `end_offset`."""
        if not self.waiting:
            self.next_offset = max(self.next_offset, end_offset)

    def plan(
        self, now_ms: int, max_records: int, max_bytes: int = PEEK_BYTES, sweep: SweepLimits = IDLE
    ) -> Plan:
        """The next transaction: newcomers first, then pending in (due, offset) order.

        `max_records` of both, `max_bytes` of bodies of those that pend; one that is larger alone;
        `sweep` bounds those that a purge has ended.
        """
        buffer = self._admission.buffer
        max_pending = max_records - len(buffer)
        watermark = self.position.watermark
        pending: list[Entry] = []
        auxiliary: list[AuxiliaryRecord] = []
        outcomes, taken_back = list[Outcome](), 0
        may_fire = self.state is State.READY and now_ms >= watermark.due_ms
        if may_fire and max_pending > 0 and max_bytes > 0:
            pending, events, taken_back, upto = self._due(now_ms, max_pending, max_bytes)
            watermark = max(watermark, upto)
            pending, outcomes = self.purges.without_ended(pending)
            auxiliary = [one for event in events if (one := record_of(self.ingress, event))]
        most_swept = sweep.beside(len(pending)) if self.state is State.READY else 0
        swept = self._sweep.piece(self.position.watermark, watermark, most_swept)
        deliveries = [*buffer.deliveries, *pending] if buffer.deliveries else pending
        next_offset = max(self.next_offset, self.position.next_offset)
        floor = self._floor(deliveries)
        missed = self._missed.planned(next_offset, floor)
        purge = self._sweep.progress_after(swept)
        position = self.position.moved_to(watermark, next_offset, floor, missed.missed_at, purge)
        batch = Batch(
            self.ingress,
            deliveries,
            tuple(buffer.dead_letters),
            (*buffer.outcomes, *outcomes, *(one.outcome for one in swept)),
            (*buffer.auxiliary, *auxiliary, *missed.records),
        )
        pending_bytes = bodies_bytes(pending) + sum(len(one.value or b"") for one in auxiliary)
        return Plan(batch, position, taken_back, pending_bytes, swept)

    def confirm(self, plan: Plan, hops: Iterable[tuple[bytes, int]] = ()) -> None:
        """The plan's transaction is known to have been committed.

        `hops`: ids and offsets of entries that it rewrote instead of delivering them.
        """
        assert plan.position.next_offset >= self.position.next_offset, (plan, self.position)
        self.position = plan.position
        watermark = plan.position.watermark
        self.store.advance(*watermark)
        self._register.advance(*watermark)
        self.half_messages.advance(watermark)
        self._missed.confirm(plan.position.missed_at, plan.position.floor)
        self._identities.position = self.purges.position = plan.position
        self._sweep.told(plan.swept)
        self.purges.forget(self.next_offset)
        self._identities.hopped(hops)
        self._admission.buffer = TransactionBuffer()

    def maintain(self, budget_entries: int, elapsed_ms: int) -> bool:
        """A bounded piece of the engine's own work, and a look at what a purge has ended; True when
        more of the engine's waits."""
        if self._wants_flush(elapsed_ms):
            self._next_flush_ms = elapsed_ms + FLUSH_EVERY_MS
            self.store.request_flush()
            self._register.request_flush()
        self._sweep.look_ahead(self.position.watermark)
        more = self.store.maintain(self.settled_offset, budget_entries)
        return self._register.maintain(self._in_store, self.position.floor) or more

    def request_flush(self) -> None:
        """Let `maintain` write out what is in memory; bodies that can be read are forgotten."""
        self.store.request_flush()
        self._register.request_flush()
        self.half_messages.forget_bodies()

    def flush_and_close(self) -> None:
        """Write local state and close it; the broker has it all."""
        try:
            self.store.flush(self.settled_offset)
            self._register.flush(self._in_store, self.position.floor)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the files as they are."""
        self._register.close()
        self.store.close()

    def _wants_flush(self, elapsed_ms: int) -> bool:
        """Whether a restart would have too much to read again; while it catches up, nothing ends
        in memory, and a shard that never gets to its end must get nearer each time."""
        covered = min(self.store.covered, self._register.covered)
        to_read_again = self.settled_offset - max(covered, self.position.floor)
        if self.state is not State.READY:
            return to_read_again >= FLUSHED_AT_ONCE
        return to_read_again >= WORTH_A_FLUSH and elapsed_ms >= self._next_flush_ms

    @property
    def _in_store(self) -> int:
        return min(self.settled_offset, self.store.covered)

    def _floor(self, deliveries: Sequence[Entry]) -> int:
        """The floor stands still until hops of before the takeover have been ingested again
        (docs/exactly-once.md, rule 4).

        Any of the deliveries may turn out to be a hop.
        """
        if self.state is not State.READY:
            return self.position.floor
        floor = min(map(_offset_of, deliveries), default=self.next_offset)
        floor = self._identities.lowest(min(floor, self.store.floor(self.next_offset)))
        return max(self.position.floor, floor)

    def _due(
        self, now_ms: int, max_records: int, max_bytes: int
    ) -> tuple[list[Entry], list[HalfMessageEvent], int, Watermark]:
        """What is due, how many entries were taken back, and up to where that is all."""
        found, is_all = self.store.due(now_ms, max_records, max_bytes)
        upto = Watermark(now_ms, LAST_OFFSET) if is_all else Watermark(*found[-1][:2])
        events, is_all = self.half_messages.due(upto, max_records)
        if not is_all:
            upto = Watermark(events[-1].fires_ms, events[-1].offset)
            found = [entry for entry in found if entry[:2] <= upto]
        taken_back = self._register.tombstones(self.position.watermark, upto)
        if not taken_back:
            return found, events, 0, upto
        kept = [entry for entry in found if entry[:2] not in taken_back]
        return kept, events, len(found) - len(kept), upto

    def _delete(self, key: Key, target: str) -> None:
        """A purge has ended this entry, and it has been told."""
        self._register.add_tombstone(self.next_offset, key, target)

    def _limits(self, offset: int, now_ms: int, max_records: int, max_bytes: int) -> IngestLimits:
        """From this offset on. Where the watermark was set back, what lies below is read apart."""
        position, committed = self.position, self.position.next_offset
        if position.set_back is not None and offset < position.set_back.below:
            committed = position.set_back.below
        ended = position.ended_upto(offset)
        return IngestLimits(now_ms, max_records, max_bytes, ended, committed)

    def _ingest_run(self, messages: Sequence[Message], start: int, limits: IngestLimits) -> int:
        """Ingest from `start` while one policy holds and there is room; the index reached."""
        run = messages[start : start + PARSED_AT_ONCE]
        admitted = self._admission.admit(run, limits)
        self.waits_for_clock = admitted.waits_for_clock
        entries = admitted.entries
        if entries and entries[0][1] < self._stored_below:
            entries = [entry for entry in entries if entry[1] >= self._stored_below]
        self.store.put(entries)
        if admitted.taken:
            last = run[admitted.taken - 1]
            self.next_offset, self.read_ms = last.offset() + 1, last.timestamp()[1]
        return start + admitted.taken
