"""One shard: what of an ingress partition is pending, and what the next transaction ends.

Pure: it is handed fetched records, the time and a store, and keeps the invariants of DESIGN 5.
Nothing counts as done until `confirm`: a plan that was not committed is simply made again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from proxy.checkpoint import LAST_OFFSET, Position
from proxy.message import DeadLetter, Message
from proxy.protocol import Rejection, RequestReader
from storage.store import Entry, Store


class State(Enum):
    """Where a shard stands between takeover and firing."""

    REPLAYING = "replaying"
    CATCHING_UP = "catching-up"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one transaction holds of one shard, and the position that it makes true."""

    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter]
    position: Position

    @property
    def records(self) -> int:
        return len(self.deliveries) + len(self.dead_letters)


@dataclass(slots=True)
class _Newcomers:
    """Records that end in the very transaction that ingests them."""

    deliveries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.deliveries) + len(self.dead_letters)


class Judges:
    """Who judges a record: request readers by the first offset that each judges."""

    def __init__(self, readers: Sequence[tuple[int, RequestReader]]) -> None:
        self._readers = list(readers)

    def at(self, offset: int) -> tuple[Callable[..., Entry | Rejection], int]:
        """The judge of the record at `offset`, and the first offset that another judges."""
        index = max(bisect_right(self._readers, offset, key=lambda first: first[0]) - 1, 0)
        until = self._readers[index + 1][0] if index + 1 < len(self._readers) else LAST_OFFSET
        return self._readers[index][1].read, until

    def judge(self, message: Message) -> Entry | Rejection:
        """One record's fate, which is the same whenever it is asked for."""
        offset = message.offset()
        headers, timestamp_ms = message.headers() or [], message.timestamp()[1]
        return self.at(offset)[0](headers, message.key(), message.value(), timestamp_ms, offset)


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
        self._judges = judges
        self._newcomers = _Newcomers()

    @property
    def state(self) -> State:
        if self.next_offset < self.position.next_offset:
            return State.REPLAYING
        return State.READY if self.next_offset >= self.barrier else State.CATCHING_UP

    @property
    def settled_offset(self) -> int:
        """Every record below is both ingested here and committed: it may go to disk."""
        return min(self.next_offset, self.position.next_offset)

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
        newcomers = self._newcomers
        room = limit - len(newcomers)
        mark = (self.position.watermark_ms, self.position.cursor)
        pending: list[Entry] = []
        if self.state is State.READY and room > 0 and now_ms >= mark[0]:
            pending, is_all = self.store.due(now_ms, room)
            last = (now_ms, LAST_OFFSET) if is_all else pending[-1][:2]
            mark = max(mark, last)
        position = replace(
            self.position,
            next_offset=max(self.next_offset, self.position.next_offset),
            watermark_ms=mark[0],
            cursor=mark[1],
            floor=max(self.position.floor, self.store.floor(self.next_offset)),
        )
        deliveries = [*newcomers.deliveries, *pending] if newcomers.deliveries else pending
        return Plan(deliveries, tuple(newcomers.dead_letters), position)

    def confirm(self, plan: Plan) -> None:
        """The plan's transaction is known to have been committed."""
        assert plan.position.next_offset >= self.position.next_offset, (plan, self.position)
        self.position = plan.position
        self.store.advance(plan.position.watermark_ms, plan.position.cursor)
        self._newcomers = _Newcomers()

    def _ingest_run(self, messages: Sequence[Message], start: int, now_ms: int, room: int) -> int:
        """Ingest from `start` while one policy counts and there is room; the index reached."""
        read, until = self._judge_from(messages[start].offset())
        is_replay = messages[start].offset() < self.position.next_offset
        watermark_ms, cursor = self.position.watermark_ms, self.position.cursor
        accepted: list[Entry] = []
        stop = len(messages)
        for index in range(start, stop):
            message = messages[index]
            offset = message.offset()
            if offset >= until:
                stop = index
                break
            fate = read(
                message.headers() or [],
                message.key(),
                message.value(),
                message.timestamp()[1],
                offset,
            )
            if not isinstance(fate, Rejection) and (
                fate[0] > watermark_ms or (fate[0] == watermark_ms and offset > cursor)
            ):
                accepted.append(fate)
            elif not is_replay and not self._end_newcomer(message, fate, now_ms, room):
                stop = index
                break
        self.store.put(accepted)
        if stop > start:
            self.next_offset = messages[stop - 1].offset() + 1
            self.read_ms = messages[stop - 1].timestamp()[1]
        return stop

    def _judge_from(self, offset: int) -> tuple[Callable[..., Entry | Rejection], int]:
        """Who judges the record at `offset`, and the offset at which that or the replay ends."""
        read, until = self._judges.at(offset)
        if offset < self.position.next_offset:
            until = min(until, self.position.next_offset)
        return read, until

    def _end_newcomer(
        self, message: Message, fate: Entry | Rejection, now_ms: int, room: int
    ) -> bool:
        """A record that ends at ingestion; False when it must wait."""
        if len(self._newcomers) >= room:
            return False
        if isinstance(fate, Rejection):
            letter = DeadLetter(
                message.offset(),
                None,
                fate,
                message.key(),
                message.value(),
                message.headers() or [],
            )
            self._newcomers.dead_letters.append(letter)
            return True
        if fate[0] > now_ms:
            self.waits_for_clock = True
            return False
        self._newcomers.deliveries.append(fate)
        return True
