"""Releases what was held back by a pause that is over (docs/exactly-once.md#paused-targets).

While a target is paused each record for it that falls due is parked: rewritten once, and not looked
at again. When the pause is over, each is moved to its own due: then it is delivered as it arrives.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

import structlog

from proxy.dispatch.hops import moved
from proxy.dispatch.release_control import ReleaseControl
from proxy.records.delivery import delivery_of
from proxy.scheduling.batch import AuxiliaryRecord, Plan
from proxy.scheduling.shard import Shard, State
from proxy.scheduling.sweep import with_bodies
from storage.store import LAST_OFFSET, Key

LOOKED_AT: Final = 500
LOOKED_AT_BYTES: Final = 2 * 1024 * 1024
MOST_UNREAD: Final = 10_000
"""So many moves, of all shards, are known not to be made again while they lie unread in the
ingress. One that is made twice ends once as `missed`."""
NEVER: Final = 2**62
FIRST: Final[Key] = (-1, -1)

log = structlog.get_logger(__name__)


class _Parked(NamedTuple):
    """A record that may be let go."""

    pattern: str
    entry_offset: int
    record: AuxiliaryRecord


@dataclass(slots=True)
class _Pass:
    """A look through the store of one shard, from the beginning to the end, under one set of
    pauses. offsets: of the entries that it is for. Those below were for the looks before it: each
    is moved, or the ingress does not take it; those beyond were read since it began. moved: of
    these, what looks under other pauses have moved; its moves may lie unread in the ingress."""

    version: int
    offsets: range
    moved: frozenset[int]
    after: Key = FIRST
    found: list[_Parked] = field(default_factory=list)
    taken: int = 0
    is_over: bool = False

    def is_for(self, entry_offset: int) -> bool:
        """Whether that entry is to be looked at."""
        return entry_offset in self.offsets and entry_offset not in self.moved


class ParkedRecords:
    """The parked records of a worker's shards. `partitions`: of the ingress, over which a rate is
    spread."""

    def __init__(self, release: ReleaseControl, partitions: int) -> None:
        self._release, self.partitions = release, partitions
        self._passes: dict[int, _Pass] = {}
        self._moved = deque[tuple[int, int]](maxlen=MOST_UNREAD)
        self._allowed: dict[tuple[int, str], tuple[float, int]] = {}

    @property
    def version(self) -> int:
        """Another one whenever pauses have changed."""
        return self._release.version

    def is_needed(self, shard: Shard, now_ms: int) -> bool:
        """Whether there may be anything to let go."""
        if not self._release.resumed(now_ms) or shard.state is not State.READY:
            return False
        current = self._pass(shard)
        return bool(current.found) or not current.is_over

    def planned(self, plan: Plan, shard: Shard, now_ms: int) -> Plan:
        """The plan, and what it lets go besides: the same again until it is `told`."""
        if not self.is_needed(shard, now_ms):
            return plan
        auxiliary = (*plan.batch.auxiliary, *self._piece(shard, now_ms))
        return replace(plan, batch=plan.batch._replace(auxiliary=auxiliary))

    def _piece(self, shard: Shard, now_ms: int) -> Sequence[AuxiliaryRecord]:
        current = self._pass(shard)
        if not current.found and not current.is_over:
            self._look(shard, current, now_ms)
        rates = self._release.resumed(now_ms)
        left = {pattern: self._left(shard, pattern, n, now_ms) for pattern, n in rates.items()}
        current.taken = 0
        for parked in current.found:
            if left.get(parked.pattern, NEVER) < 1:
                break
            left[parked.pattern] = left.get(parked.pattern, NEVER) - 1
            current.taken += 1
        return [parked.record for parked in current.found[: current.taken]]

    def told(self, partition: int, written: Sequence[AuxiliaryRecord]) -> int | None:
        """The piece is committed: each is moved, or has ended by then. What of it is not among the
        `written` stays parked, since the ingress does not take it. Offset of the entry that was
        moved last."""
        current = self._passes.get(partition)
        if current is None or not current.taken:
            return None
        piece = current.found[: current.taken]
        places = {(record.topic, record.offset) for record in written}
        moved, refused = list[_Parked](), list[_Parked]()
        for parked in piece:
            is_moved = (parked.record.topic, parked.record.offset) in places
            (moved if is_moved else refused).append(parked)
        self._moved.extend((partition, parked.entry_offset) for parked in moved)
        if refused:
            _tell_refused(partition, refused)
        for parked in piece:
            place = partition, parked.pattern
            if place in self._allowed:
                allowed, at_ms = self._allowed[place]
                self._allowed[place] = allowed - 1, at_ms
        del current.found[: current.taken]
        current.taken = 0
        return moved[-1].entry_offset if moved else None

    def forget(self, partition: int) -> None:
        """It is not served any more."""
        self._passes.pop(partition, None)
        others = [place for place in self._moved if place[0] != partition]
        self._moved = deque(others, MOST_UNREAD)
        self._allowed = {at: left for at, left in self._allowed.items() if at[0] != partition}

    def _pass(self, shard: Shard) -> _Pass:
        """Begun anew when pauses have changed, or a record was parked that it may have missed."""
        partition = shard.ingress.number
        known, version = self._passes.get(partition), self._release.version
        if known is None or known.version != version:
            return self._begin(partition, range(shard.next_offset))
        seen = known.offsets.stop
        if known.is_over and not known.found and seen <= shard.last_parked:
            return self._begin(partition, range(seen, shard.next_offset))
        return known

    def _begin(self, partition: int, offsets: range) -> _Pass:
        moved = frozenset(offset for number, offset in self._moved if number == partition)
        begun = self._passes[partition] = _Pass(self._release.version, offsets, moved)
        return begun

    def _look(self, shard: Shard, current: _Pass, now_ms: int) -> None:
        end = NEVER, LAST_OFFSET
        after = max(current.after, (now_ms, LAST_OFFSET))
        pattern_of = cache(lambda target: self._release.resumed_pattern(target, now_ms))
        found = shard.scan(
            after, NEVER, lambda target: pattern_of(target) is not None, LOOKED_AT, LOOKED_AT_BYTES
        )
        found = found._replace(entries=[one for one in found.entries if current.is_for(one[1])])
        entries, current.after = with_bodies(found, shard.read_back)
        for delivery in map(delivery_of, entries):
            pattern = pattern_of(delivery.target)
            is_purged = shard.is_purged(delivery.entry_offset, delivery.target, delivery.due_ms)
            if delivery.is_parked and pattern is not None and not is_purged:
                record = moved(shard.ingress, delivery, delivery.due_ms)
                current.found.append(_Parked(pattern, delivery.entry_offset, record))
        current.is_over = current.after >= end

    def _left(self, shard: Shard, pattern: str, per_second: int | None, now_ms: int) -> float:
        """How many may go now: what a second allows at most is saved up."""
        if per_second is None:
            return NEVER
        share = per_second / self.partitions
        place = shard.ingress.number, pattern
        allowed, at_ms = self._allowed.get(place, (1.0, now_ms))
        allowed = min(max(1.0, share), allowed + share * max(0, now_ms - at_ms) / 1000)
        self._allowed[place] = allowed, now_ms
        return allowed


def _tell_refused(partition: int, refused: Sequence[_Parked]) -> None:
    """Not tried again before pauses change or the shard is taken over: each time costs aborted
    transactions."""
    log.warning(
        "records stay parked: the ingress does not take them",
        partition=partition,
        records=len(refused),
        first_offset=refused[0].record.offset,
        remedy="raise max.message.bytes of the ingress, then pause and resume their targets",
    )
