"""Keys of entries that were deleted: in memory until written, then read from the runs."""

import heapq
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np

from storage.ids.runs.layout import TombstoneColumns
from storage.ids.runs.run import Run
from storage.register import Key
from storage.shard.memory.target_counter import TargetCounter
from storage.shard.memory.target_numbers import TargetNumbers

NEVER: Key = (2**63 - 1, 2**63 - 1)
COUNTED_AT_ONCE = 16_384


class MemtableTombstones:
    """Tombstones of one memtable. Those asked about lie sorted in `_near`, all beyond them in
    a heap, so that neither adding nor asking looks at all of them."""

    def __init__(self) -> None:
        self.targets: dict[Key, str] = {}
        self._near: list[Key] = []
        self._far: list[Key] = []
        self._asked: Key = (-1, -1)

    @property
    def next(self) -> Key:
        """The lowest key, NEVER if there is none."""
        if self._near:
            return self._near[0]
        return self._far[0] if self._far else NEVER

    def add(self, key: Key, target: str) -> bool:
        """Take a key; False if it is here already."""
        if key in self.targets:
            return False
        self.targets[key] = target
        if key <= self._asked:
            insort(self._near, key)
        else:
            heapq.heappush(self._far, key)
        return True

    def between(self, after: Key, upto: Key) -> list[Key]:
        """Keys beyond `after`, up to and with `upto`."""
        if upto > self._asked:
            self._asked = upto
            while self._far and self._far[0] <= upto:
                self._near.append(heapq.heappop(self._far))
        near = self._near
        return near[bisect_right(near, after) : bisect_right(near, upto)]

    def end(self, ended: Key) -> Counter[str]:
        """Forget keys at or below `ended`; how many there were for each target."""
        gone = self.between((-1, -1), ended)
        del self._near[: len(gone)]
        return Counter(map(self.targets.pop, gone))


class Tombstones:
    """Those beyond what has ended, of all memtables and runs, and how many for a target."""

    def __init__(self, ended: Key, most_names: int) -> None:
        self.by_target = TargetCounter(TargetNumbers({}, most_names))
        self.next: Key = NEVER
        self._ended = ended
        self._memtables: list[MemtableTombstones] = []
        self._runs: list[tuple[Run, int]] = []

    def attach(self, memtables: Iterable[MemtableTombstones], runs: Iterable[Run]) -> None:
        """From now on the keys are in these: the same ones as before, in other places."""
        self._memtables = list(memtables)
        holding = [run for run in runs if run.contents.tombstones.offsets.size]
        self._runs = [(run, run.contents.tombstones.upto(self._ended)) for run in holding]
        self._find_next()

    def count(self) -> None:
        """Count what the attached runs hold."""
        for run, place in self._runs:
            for counted in _by_target(run, place, run.contents.tombstones.offsets.size):
                self.by_target.add(counted)

    def add(self, memtable: MemtableTombstones, key: Key, target: str) -> None:
        """Let `memtable`, which is attached, take a key."""
        if key > self._ended and memtable.add(key, target):
            self.by_target.add({target: 1})
            self.next = min(self.next, key)

    def between(self, after: Key, upto: Key) -> set[Key]:
        """Keys beyond `after`, up to and with `upto`, that have not ended."""
        if upto < self.next:
            return set()
        after = max(after, self._ended)
        found: set[Key] = set()
        for memtable in self._memtables:
            found.update(memtable.between(after, upto))
        for run, _ in self._runs:
            tombstones = run.contents.tombstones
            part = tombstones.part(tombstones.upto(after), tombstones.upto(upto))
            found.update(zip(part.fires_ms.tolist(), part.offsets.tolist(), strict=True))
        return found

    def among(self, keys: Sequence[Key]) -> set[Key]:
        """Those of these keys, which are in order, that are here and have not ended. Unlike
        `between` it moves none nearer, so that it may be asked about any time to come."""
        keys = [key for key in keys if key > self._ended]
        if not keys or keys[-1] < self.next:
            return set()
        tables = [memtable.targets for memtable in self._memtables]
        found = {key for key in keys if any(key in table for table in tables)}
        first, last = (keys[0][0], keys[0][1] - 1), keys[-1]
        offsets = np.fromiter(map(itemgetter(1), keys), np.int64, len(keys))
        for run, _ in self._runs:
            tombstones = run.contents.tombstones
            part = tombstones.part(tombstones.upto(first), tombstones.upto(last))
            hits = np.isin(part.offsets, offsets)
            found.update(
                zip(part.fires_ms[hits].tolist(), part.offsets[hits].tolist(), strict=True)
            )
        return found.intersection(keys)

    def end(self, ended: Key) -> None:
        """Forget keys at or below `ended`."""
        self._ended = ended
        if ended < self.next:
            return
        for memtable in self._memtables:
            self.by_target.remove(memtable.end(ended))
        for at, (run, place) in enumerate(self._runs):
            beyond = run.contents.tombstones.upto(ended)
            for counted in _by_target(run, place, beyond):
                self.by_target.remove(counted)
            self._runs[at] = run, beyond
        numbers = self.by_target.numbers
        if numbers.wants_release and not self.by_target.others:
            numbers.release(self.by_target.by_name)
        self._find_next()

    def _find_next(self) -> None:
        heads = [memtable.next for memtable in self._memtables]
        for run, place in self._runs:
            if place < run.contents.tombstones.offsets.size:
                heads.append(run.contents.tombstones.key(place))
        self.next = min(heads, default=NEVER)


def _by_target(run: Run, start: int, end: int) -> Iterator[Counter[str]]:
    """How many of the tombstones at these places of a run there are for each target: in parts,
    for there may be as many names as tombstones."""
    for first in range(start, end, COUNTED_AT_ONCE):
        part = run.contents.tombstones.targets[first : min(end, first + COUNTED_AT_ONCE)]
        counted = Counter[str]()
        for number, count in zip(*np.unique(part, return_counts=True), strict=True):
            counted[run.contents.names[int(number)]] += int(count)
        yield counted


def in_order(targets: dict[Key, str], numbers: dict[str, int]) -> TombstoneColumns:
    """Tombstones as columns, their targets by number."""
    count = len(targets)
    fires_ms = np.fromiter(map(itemgetter(0), targets), np.int64, count)
    offsets = np.fromiter(map(itemgetter(1), targets), np.int64, count)
    found = np.fromiter(map(numbers.__getitem__, targets.values()), np.uint32, count)
    order = np.lexsort((offsets, fires_ms))
    return TombstoneColumns(fires_ms[order], offsets[order], found[order])
