"""One shard: what of an ingress partition is pending, and what the next transaction ends.

Pure: it is handed fetched records, the time, a store and a register, and keeps the invariants of
DESIGN 5. Nothing counts as done until `confirm`: a plan that was not committed is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import itemgetter
from typing import Final

from proxy.records.entry import target_of
from proxy.records.message import DeadLetter, Message
from proxy.records.position import LAST_OFFSET, Position
from proxy.requests.parsed import Fate, Prepare
from proxy.requests.policy_timeline import Judges
from proxy.scheduling.admission import Admission, Turn
from proxy.scheduling.half_message_records import note_of
from proxy.scheduling.identities import HALF, Identities
from proxy.scheduling.transaction_buffer import Ends, Note, Outcome
from proxy.scheduling.undecided import Event, Undecided
from storage.register import Key, Named, Register
from storage.store import Entry, Store

JUDGED_AT_ONCE: Final = 2048
"""What is known of their ids is asked for together."""

_offset_of = itemgetter(1)


class State(Enum):
    """Where a shard stands between takeover and firing."""

    REPLAYING = "replaying"
    CATCHING_UP = "catching-up"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one transaction holds of one shard, and the position that it makes true.

    `passed`: pending entries that it passes over, since they have been taken back.
    """

    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter]
    outcomes: Sequence[Outcome]
    notes: Sequence[Note]
    position: Position
    passed: int = 0

    @property
    def records(self) -> int:
        said = len(self.outcomes) + len(self.notes)
        return len(self.deliveries) + len(self.dead_letters) + said + self.passed


class Shard:
    """All state of one ingress partition.

    `position` is what the broker has committed, `read_from` the first offset that will be
    handed to `ingest`, `barrier` the end of the partition as it was at takeover: until it is
    reached the watermark stands still (DESIGN 5.5).
    """

    def __init__(
        self,
        origin: str,
        position: Position,
        store: Store,
        judges: Judges,
        read_from: int,
        barrier: int,
        register: Register,
        read_halves: Callable[[Sequence[int]], dict[int, Prepare]],
    ) -> None:
        assert read_from <= position.next_offset, (read_from, position)
        self.origin = origin
        self.position = position
        self.store = store
        self.next_offset = read_from
        self.barrier = barrier
        self.waiting: list[Message] = []
        self.waits_for_clock = False
        self.read_ms = 0
        self._register, self._judges = register, judges
        self._stored_below = store.covered
        self._undecided = Undecided(read_halves, position.mark)
        self._undecided.load((n.offset, ident) for ident, n in register.of_kind(HALF))
        self._identities = Identities(register, self._undecided, position.mark)
        self._admission = Admission(origin, judges, self._identities, self._undecided)

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
        return len(self._admission.ends)

    @property
    def undecided(self) -> int:
        """How many half messages are undecided."""
        return len(self._undecided)

    def pending(self) -> int:
        """How many records will fire, as far as is known; undecided half messages are none."""
        return self.store.pending() - sum(self._register.tombstones_by_target().values())

    def pending_by_target(self) -> dict[str, int]:
        """How many of them for each target."""
        counts: dict[str, int] = {}
        buried = self._register.tombstones_by_target()
        for target, count in self.store.pending_by_target().items():
            name = target_of(target)
            counts[name] = counts.get(name, 0) + count - buried[target]
        return {target: count for target, count in counts.items() if count}

    def pending_by_time(self, edges_ms: Sequence[int]) -> list[int]:
        """About how many of them until when, as `Store.pending_by_time`; those taken back count
        until their time has come."""
        return self.store.pending_by_time(edges_ms)

    def named(self, ident: bytes) -> Named | None:
        """What is known of an id."""
        return self._register.find([ident]).get(ident)

    def judged(self, message: Message) -> Fate:
        """The fate of a record of this partition, the same as when it was ingested."""
        return self._judges.judge(message)

    def next_due_ms(self, until_ms: int) -> int | None:
        """When something is to happen at or before `until_ms`, else None."""
        event_ms = self._undecided.next_ms()
        due_ms = self.store.next_due_ms(until_ms)
        if event_ms is None or event_ms > until_ms:
            return due_ms
        return event_ms if due_ms is None else min(event_ms, due_ms)

    def ingest(self, messages: Sequence[Message], now_ms: int, room: int) -> None:
        """Take records in offset order; keep in `waiting` what the next transaction cannot hold.

        `room` bounds the records that end as they are ingested. A record due by a watermark
        that this machine's clock has not reached waits too (DESIGN 5.7).
        """
        messages = [*self.waiting, *messages] if self.waiting else messages
        self.waiting = []
        self.waits_for_clock = False
        start = 0
        while start < len(messages):
            taken = self._ingest_run(messages, start, now_ms, room)
            if taken == start:
                self.waiting = list(messages[start:])
                return
            start = taken

    def reach(self, end_offset: int) -> None:
        """The partition has no records between what was ingested and `end_offset`."""
        if not self.waiting:
            self.next_offset = max(self.next_offset, end_offset)

    def plan(self, now_ms: int, limit: int) -> Plan:
        """The next transaction: newcomers first, then pending in (due, offset) order."""
        ends = self._admission.ends
        room = limit - len(ends)
        mark = self.position.mark
        pending: list[Entry] = []
        notes: list[Note] = []
        passed = 0
        if self.state is State.READY and room > 0 and now_ms >= mark[0]:
            pending, events, passed, upto = self._due(now_ms, room)
            mark = max(mark, upto)
            notes = [note for event in events if (note := note_of(self.origin, event))]
        deliveries = [*ends.deliveries, *pending] if ends.deliveries else pending
        position = replace(
            self.position,
            next_offset=max(self.next_offset, self.position.next_offset),
            watermark_ms=mark[0],
            cursor=mark[1],
            floor=self._floor(deliveries),
        )
        return Plan(
            deliveries,
            tuple(ends.dead_letters),
            tuple(ends.outcomes),
            (*ends.notes, *notes),
            position,
            passed,
        )

    def confirm(self, plan: Plan, hops: Iterable[tuple[bytes, int]] = ()) -> None:
        """The plan's transaction is known to have been committed.

        `hops`: ids and offsets of entries that it rewrote instead of delivering them.
        """
        assert plan.position.next_offset >= self.position.next_offset, (plan, self.position)
        self.position = plan.position
        mark = plan.position.mark
        self.store.advance(*mark)
        self._register.advance(*mark)
        self._undecided.advance(mark)
        self._identities.mark = mark
        self._identities.hopped(hops)
        self._admission.ends = Ends()

    def maintain(self, budget_entries: int) -> bool:
        """A bounded piece of the engine's own work; True when more waits."""
        more = self.store.maintain(self.settled_offset, budget_entries)
        return self._register.maintain(self._in_store, self.position.floor) or more

    def put_away(self) -> None:
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

    @property
    def _in_store(self) -> int:
        return min(self.settled_offset, self.store.covered)

    def _floor(self, deliveries: Sequence[Entry]) -> int:
        """F stands still until hops of before the takeover have landed (DESIGN 5.4).

        Any of the deliveries may turn out to be a hop.
        """
        if self.state is not State.READY:
            return self.position.floor
        floor = min(map(_offset_of, deliveries), default=self.next_offset)
        floor = self._identities.lowest(min(floor, self.store.floor(self.next_offset)))
        return max(self.position.floor, floor)

    def _due(self, now_ms: int, room: int) -> tuple[list[Entry], list[Event], int, Key]:
        """What is due, how many entries were taken back, and up to where that is all."""
        found, is_all = self.store.due(now_ms, room)
        upto = (now_ms, LAST_OFFSET) if is_all else found[-1][:2]
        events = self._undecided.due(upto, room)
        if len(events) == room:
            upto = events[-1].fires_ms, events[-1].offset
            found = [entry for entry in found if entry[:2] <= upto]
        buried = self._register.tombstones(self.position.mark, upto)
        if not buried:
            return found, events, 0, upto
        alive = [entry for entry in found if entry[:2] not in buried]
        return alive, events, len(found) - len(alive), upto

    def _ingest_run(self, messages: Sequence[Message], start: int, now_ms: int, room: int) -> int:
        """Ingest from `start` while one policy counts and there is room; the index reached."""
        run = messages[start : start + JUDGED_AT_ONCE]
        turn = Turn(now_ms, room, self.position.mark, self.position.next_offset)
        admitted = self._admission.admit(run, turn)
        self.waits_for_clock = admitted.waits_for_clock
        entries = admitted.entries
        if entries and entries[0][1] < self._stored_below:
            entries = [entry for entry in entries if entry[1] >= self._stored_below]
        self.store.put(entries)
        if admitted.taken:
            last = run[admitted.taken - 1]
            self.next_offset, self.read_ms = last.offset() + 1, last.timestamp()[1]
        return start + admitted.taken
