"""Keys of entries that were taken back: in memory until written, then read from the runs."""

import heapq
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

import numpy as np

from storage.ids.runs.layout import Buried
from storage.ids.runs.run import Run
from storage.register import Key

NEVER: Key = (2**63 - 1, 2**63 - 1)


class RecentlyBuried:
    """Buried keys of one memory table. Those asked about lie sorted in `_near`, all beyond them in
    a heap, so that neither burying nor asking looks at all of them."""

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


class AllBuried:
    """The buried keys beyond what has ended, of all tables and runs, and how many for a target."""

    def __init__(self, ended: Key) -> None:
        self.by_target: Counter[str] = Counter()
        self.next: Key = NEVER
        self._ended = ended
        self._tables: list[RecentlyBuried] = []
        self._runs: list[tuple[Run, int]] = []

    def attach(self, tables: Iterable[RecentlyBuried], runs: Iterable[Run]) -> None:
        """From now on the keys are in these: the same ones as before, in other places."""
        self._tables = list(tables)
        holding = [run for run in runs if run.contents.buried.offsets.size]
        self._runs = [(run, run.contents.buried.upto(self._ended)) for run in holding]
        self._find_next()

    def count(self) -> None:
        """Count what the attached runs hold."""
        for run, place in self._runs:
            self._count(run, place, run.contents.buried.offsets.size, 1)

    def add(self, table: RecentlyBuried, key: Key, target: str) -> None:
        """Let `table`, which is attached, take a key."""
        if key > self._ended and table.add(key, target):
            self.by_target[target] += 1
            self.next = min(self.next, key)

    def between(self, after: Key, upto: Key) -> set[Key]:
        """Keys beyond `after`, up to and with `upto`, that have not ended."""
        if upto < self.next:
            return set()
        after = max(after, self._ended)
        found: set[Key] = set()
        for table in self._tables:
            found.update(table.between(after, upto))
        for run, _ in self._runs:
            buried = run.contents.buried
            part = buried.part(buried.upto(after), buried.upto(upto))
            found.update(zip(part.fires_ms.tolist(), part.offsets.tolist(), strict=True))
        return found

    def end(self, ended: Key) -> None:
        """Forget keys at or below `ended`."""
        self._ended = ended
        if ended < self.next:
            return
        for table in self._tables:
            self.by_target.subtract(table.end(ended))
        for at, (run, place) in enumerate(self._runs):
            beyond = run.contents.buried.upto(ended)
            self._count(run, place, beyond, -1)
            self._runs[at] = run, beyond
        self.by_target = +self.by_target
        self._find_next()

    def _count(self, run: Run, start: int, end: int, sign: int) -> None:
        numbers = run.contents.buried.targets[start:end]
        if numbers.size:
            found, counts = np.unique(numbers, return_counts=True)
            for number, count in zip(found.tolist(), counts.tolist(), strict=True):
                self.by_target[run.contents.names[number]] += sign * count

    def _find_next(self) -> None:
        heads = [table.next for table in self._tables]
        for run, place in self._runs:
            if place < run.contents.buried.offsets.size:
                heads.append(run.contents.buried.key(place))
        self.next = min(heads, default=NEVER)


def in_order(targets: dict[Key, str], numbers: dict[str, int]) -> Buried:
    """Buried keys as columns, their targets by number."""
    count = len(targets)
    fires_ms = np.fromiter(map(itemgetter(0), targets), np.int64, count)
    offsets = np.fromiter(map(itemgetter(1), targets), np.int64, count)
    found = np.fromiter(map(numbers.__getitem__, targets.values()), np.uint32, count)
    order = np.lexsort((offsets, fires_ms))
    return Buried(fires_ms[order], offsets[order], found[order])
