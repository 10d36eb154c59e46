"""Release of paused records after a pause (docs/exactly-once.md#paused-targets).

A due record for a paused target is rewritten once. After the pause a move takes the record's place.
The move keeps the due, which has passed. So the move is delivered on arrival, unless the operator
resumed the target with a rate (`resume --per-second`). Then the move waits in a queue."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

import structlog

from proxy.dispatch.hops import moved
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.body import delivery_of
from proxy.scheduling.batch import OutgoingRecord, Plan
from proxy.scheduling.purges import with_bodies
from proxy.scheduling.shard import Shard, State
from storage.store import LAST_OFFSET, Key

LOOKED_AT: Final = 500
LOOKED_AT_BYTES: Final = 2 * 1024 * 1024
MOST_UNREAD: Final = 10_000
"""At most this many moves are remembered until they are ingested. A forgotten move may be written
twice, and then the second move ends as `missed`."""
NEVER: Final = 2**62
FIRST: Final[Key] = (-1, -1)

log = structlog.get_logger(__name__)


class _Paused(NamedTuple):
    fires_ms: int
    entry_offset: int
    record: OutgoingRecord


@dataclass(slots=True)
class _Pass:
    """One scan of a shard's store, under one set of pauses."""

    version: int
    offsets: range
    """Entries to look at: ingested before this pass began, and not seen by earlier passes."""
    moved: frozenset[int]
    """Entries moved by other passes. Those moves may be unread in the ingress."""
    after: Key = FIRST
    found: list[_Paused] = field(default_factory=list)
    is_offered: bool = False
    is_over: bool = False


class PausedRecords:
    """The paused records of a worker's shards. If a target is resumed with a rate, all ingress
    `partitions` share this rate."""

    def __init__(self, release: ReleaseControl, partitions: int) -> None:
        self.release, self.partitions = release, partitions
        self.passes: dict[int, _Pass] = {}
        """Passes by partition. Empty until a pause is over."""
        self._moved = deque[tuple[int, int]](maxlen=MOST_UNREAD)

    def serve(self, shards: int) -> None:
        """Set this worker's share of the rates after pauses, from its number of shards."""
        self.release.share = shards / self.partitions

    def is_needed(self, shard: Shard, now_ms: int) -> bool:
        if not self.release.looks_for_paused(now_ms):
            return False
        if shard.state is not State.READY:
            return False
        current = self._pass(shard)
        return bool(current.found) or not current.is_over

    def planned(self, plan: Plan, shard: Shard, now_ms: int) -> Plan:
        """Return the plan with moves of paused records: the same moves until `note_written`."""
        if not self.is_needed(shard, now_ms):
            return plan
        current = self._pass(shard)
        if not current.found:
            self._look(shard, current, now_ms)
        current.found = [paused for paused in current.found if paused.fires_ms > now_ms]
        current.is_offered = True
        auxiliary = (*plan.batch.auxiliary, *(paused.record for paused in current.found))
        return replace(plan, batch=plan.batch._replace(auxiliary=auxiliary))

    def note_written(self, partition: int, written: Sequence[OutgoingRecord]) -> int | None:
        """Note the `written` moves as committed. Return the entry offset of the last one."""
        current = self.passes.get(partition)
        if current is None or not current.is_offered:
            return None
        piece, current.found, current.is_offered = current.found, [], False
        refs = {record.ref for record in written}
        moved, refused = list[_Paused](), list[_Paused]()
        for paused in piece:
            (moved if paused.record.ref in refs else refused).append(paused)
        self._moved.extend((partition, paused.entry_offset) for paused in moved)
        if refused:  # tried again only after pauses change, because a try aborts transactions
            log.warning(
                "records stay paused: the ingress rejects them",
                partition=partition,
                records=len(refused),
                first_offset=refused[0].entry_offset,
                remedy="raise max.message.bytes of the ingress, then pause and resume the "
                "targets of these records",
            )
        return moved[-1].entry_offset if moved else None

    def forget(self, partition: int) -> None:
        self.passes.pop(partition, None)
        others = [place for place in self._moved if place[0] != partition]
        self._moved = deque(others, MOST_UNREAD)

    def _pass(self, shard: Shard) -> _Pass:
        """Return the current pass. A change of pauses or a newly paused record begins another."""
        partition = shard.ingress.number
        known, version = self.passes.get(partition), self.release.version
        if known is None or known.version != version:
            return self._begin(partition, range(shard.next_offset))
        seen = known.offsets.stop
        if known.is_over and not known.found and self._has_arrived(shard, seen):
            return self._begin(partition, range(seen, shard.next_offset))
        return known

    def _has_arrived(self, shard: Shard, since: int) -> bool:
        return any(
            offset >= since and not self.release.is_queue(end_ms)
            for end_ms, offset in shard.admission.identities.last_resumed.items()
        )

    def _begin(self, partition: int, offsets: range) -> _Pass:
        moved = frozenset(offset for number, offset in self._moved if number == partition)
        begun = self.passes[partition] = _Pass(self.release.version, offsets, moved)
        return begun

    def _look(self, shard: Shard, current: _Pass, now_ms: int) -> None:
        end = NEVER, LAST_OFFSET
        after = max(current.after, (now_ms, LAST_OFFSET))
        wants = cache(lambda target: self.release.is_resumed(target, now_ms))
        found = shard.scan(after, NEVER, wants, LOOKED_AT, LOOKED_AT_BYTES)
        mine = (one for one in found.entries if one[1] in current.offsets)
        found = found._replace(entries=[one for one in mine if one[1] not in current.moved])
        entries, current.after = with_bodies(found, shard.read_back)
        for delivery in map(delivery_of, entries):
            fires_ms, offset, due_ms = delivery.fires_ms, delivery.entry_offset, delivery.due_ms
            is_purged = shard.is_purged(offset, delivery.target, due_ms)
            not_before = None if is_purged else self.release.not_before(delivery, now_ms)
            if not_before is not None:
                record = moved(shard.ingress, delivery, due_ms, not_before)
                current.found.append(_Paused(fires_ms, offset, record))
        current.is_over = current.after >= end
