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
from proxy.protocol.body import delivery_of
from proxy.scheduling.batch import AuxiliaryRecord, Plan
from proxy.scheduling.purges import with_bodies
from proxy.scheduling.shard import Shard, State
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
    """A record that may be let go, and when its entry fires."""

    fires_ms: int
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
    is_offered: bool = False
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

    def serve(self, shards: int) -> None:
        """This worker has so many of the partitions from now on, and that share of a rate."""
        self._release.share = shards / self.partitions

    @property
    def version(self) -> int:
        """Another one whenever pauses have changed."""
        return self._release.version

    def lets_go(self, now_ms: int) -> bool:
        """Return whether a pause has ended whose records may still be parked."""
        return self._release.looks_for_held(now_ms)

    def is_needed(self, shard: Shard, now_ms: int) -> bool:
        """Whether there may be anything to let go."""
        if not self._release.looks_for_held(now_ms) or shard.state is not State.READY:
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
        current.found = [parked for parked in current.found if parked.fires_ms > now_ms]
        current.is_offered = True
        return [parked.record for parked in current.found]

    def told(self, partition: int, written: Sequence[AuxiliaryRecord]) -> int | None:
        """The piece is committed: each is moved, or has ended by then. What of it is not among the
        `written` stays parked, since the ingress does not take it. Offset of the entry that was
        moved last."""
        current = self._passes.get(partition)
        if current is None or not current.is_offered:
            return None
        piece, current.found, current.is_offered = current.found, [], False
        places = {(record.topic, record.offset) for record in written}
        moved, refused = list[_Parked](), list[_Parked]()
        for parked in piece:
            is_moved = (parked.record.topic, parked.record.offset) in places
            (moved if is_moved else refused).append(parked)
        self._moved.extend((partition, parked.entry_offset) for parked in moved)
        if refused:
            _tell_refused(partition, refused)
        return moved[-1].entry_offset if moved else None

    def forget(self, partition: int) -> None:
        """It is not served any more."""
        self._passes.pop(partition, None)
        others = [place for place in self._moved if place[0] != partition]
        self._moved = deque(others, MOST_UNREAD)

    def _pass(self, shard: Shard) -> _Pass:
        """Begun anew when pauses have changed, or a record was parked that it may have missed."""
        partition = shard.ingress.number
        known, version = self._passes.get(partition), self._release.version
        if known is None or known.version != version:
            return self._begin(partition, range(shard.next_offset))
        seen = known.offsets.stop
        if known.is_over and not known.found and self._has_arrived(shard, seen):
            return self._begin(partition, range(seen, shard.next_offset))
        return known

    def _has_arrived(self, shard: Shard, since: int) -> bool:
        """Whether a record has that is to be let go: parked, or placed by an earlier resume."""
        return any(
            offset >= since and not self._release.is_queue(end_ms)
            for end_ms, offset in shard.last_held.items()
        )

    def _begin(self, partition: int, offsets: range) -> _Pass:
        moved = frozenset(offset for number, offset in self._moved if number == partition)
        begun = self._passes[partition] = _Pass(self._release.version, offsets, moved)
        return begun

    def _look(self, shard: Shard, current: _Pass, now_ms: int) -> None:
        end = NEVER, LAST_OFFSET
        after = max(current.after, (now_ms, LAST_OFFSET))
        wants = cache(lambda target: self._release.is_resumed(target, now_ms))
        found = shard.scan(after, NEVER, wants, LOOKED_AT, LOOKED_AT_BYTES)
        found = found._replace(entries=[one for one in found.entries if current.is_for(one[1])])
        entries, current.after = with_bodies(found, shard.read_back)
        for delivery in map(delivery_of, entries):
            fires_ms, offset, due_ms = delivery.fires_ms, delivery.entry_offset, delivery.due_ms
            is_purged = shard.is_purged(offset, delivery.target, due_ms)
            place = None if is_purged else self._release.place(delivery, now_ms)
            if place is not None:
                record = moved(shard.ingress, delivery, due_ms, place)
                current.found.append(_Parked(fires_ms, offset, record))
        current.is_over = current.after >= end


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
