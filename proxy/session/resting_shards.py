"""Shards with nothing to do are left out of a turn: its work grows with those that have some."""

from collections.abc import Iterable, Mapping
from typing import Final

from proxy.clock import Moment
from proxy.scheduling.shard import Shard, State
from proxy.session.memory_budget import Held

REST_MS: Final = 250
"""The first turn after so long looks at a shard again: what comes to it by another way than a
fetch, an operator's change or a file to be written, waits no longer. No turn begins for that."""
SPREAD_MS: Final = 125
SPREAD_BY: Final = 37
LOOKED_AT_TOGETHER: Final = 64
"""By up to so much less, different for each so many partitions: not all are looked at in one turn,
and where there are few, most turns look at none."""


class RestingShards:
    """Until when each of them needs no look, by the monotonic clock. What a fetch brings wakes it;
    else nothing changes in it, and what it has in memory counts as it was.

    One that only waits for a commit is tidy meanwhile: its store has nothing to do until then."""

    def __init__(self) -> None:
        self._tidy: set[int] = set()
        self._until_ms: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        """Of those that rest until something of theirs falls due; by the monotonic clock, too."""
        self._held: dict[int, Held] = {}
        self._memtable_bytes = self._peeked_bytes = 0

    @property
    def held(self) -> Held:
        """What all of them have in memory."""
        return Held(self._memtable_bytes, self._peeked_bytes)

    def awake(self, shards: Mapping[int, Shard]) -> dict[int, Shard]:
        """Those that do not rest, in their order."""
        return {p: shard for p, shard in shards.items() if p not in self._until_ms}

    def untidy(self, awake: Mapping[int, Shard]) -> list[int]:
        """Those of them whose stores may have something to do."""
        return [partition for partition in awake if partition not in self._tidy]

    def wait_ms(self, elapsed_ms: int, at_most_ms: int) -> int:
        """Until something of the first falls due, if that is sooner."""
        first_ms = min(self._due_ms.values(), default=elapsed_ms + at_most_ms)
        return min(at_most_ms, first_ms - elapsed_ms)

    def let_rest(self, partition: int, shard: Shard, at: Moment) -> None:
        """This one has no more to write: it rests, if nothing else is to be done either, until
        something of it falls due."""
        self._tidy.add(partition)
        if not _has_nothing_to_do(shard):
            return
        rest_ms = REST_MS - partition // LOOKED_AT_TOGETHER * SPREAD_BY % SPREAD_MS
        due_ms = shard.next_due_ms(at.now_ms + rest_ms)
        if due_ms is not None:
            rest_ms = due_ms - at.now_ms
            self._due_ms[partition] = at.elapsed_ms + rest_ms
        self._until_ms[partition] = at.elapsed_ms + rest_ms
        self._held[partition] = held = Held(shard.memtable_bytes, shard.store.peeked_bytes)
        self._memtable_bytes += held.memtable_bytes
        self._peeked_bytes += held.peeked_bytes

    def wake(self, partitions: Iterable[int]) -> None:
        """These are to be looked at: something has happened to them, or they are gone."""
        for partition in partitions:
            self._tidy.discard(partition)
            if self._until_ms.pop(partition, None) is not None:
                self._due_ms.pop(partition, None)
                held = self._held.pop(partition)
                self._memtable_bytes -= held.memtable_bytes
                self._peeked_bytes -= held.peeked_bytes

    def wake_rested(self, elapsed_ms: int) -> None:
        """Those whose time is over."""
        self.wake([p for p, until_ms in self._until_ms.items() if until_ms <= elapsed_ms])

    def wake_all(self) -> None:
        """All are to be looked at."""
        self.wake(list(self._until_ms))


def _has_nothing_to_do(shard: Shard) -> bool:
    """Whether all that was read of it is committed, and what waits only waits for its time. What a
    transaction under way has ended counts as due, so that the rest is over at once."""
    return (
        shard.next_offset == shard.position.next_offset
        and shard.state is State.READY
        and not shard.waiting
        and not shard.ending
        and not shard.is_sweeping
    )
