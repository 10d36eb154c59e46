"""Names of targets in a run, by number: they stay in its file, however many there are."""

from collections.abc import Sequence
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from storage.ids.runs.layout import RunContents
from storage.store import Column

MOST_REMEMBERED: Final = 10_000
"""Names whose number a merge knows without looking; one that was forgotten gets another."""


class MappedNames(Sequence[str]):
    """`data` holds the names one after the other in UTF-8, `ends` where each ends."""

    def __init__(self, ends: Column, data: memoryview) -> None:
        self._ends, self._data = ends, data

    def __len__(self) -> int:
        return int(self._ends.size)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        start = int(self._ends[number - 1]) if number else 0
        return bytes(self._data[start : int(self._ends[number])]).decode()


class MergedNames:
    """Gives the targets of several sources new numbers, those that are still met. Of each name of a
    source it keeps eight bytes."""

    def __init__(self, sources: Sequence[RunContents]) -> None:
        self._sources = [source.names for source in sources]
        self._bases = np.cumsum([0, *map(len, self._sources)]).astype(np.int64)
        self._numbers = np.full(int(self._bases[-1]), -1, np.int64)
        self._by_name: dict[str, int] = {}
        self._count = 0
        self._fresh: list[str] = []

    def base(self, number: int) -> np.uint32:
        """What to add to target numbers of source `number` before they are all looked up."""
        return np.uint32(self._bases[number])

    def numbered(self, targets: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The new numbers."""
        numbers = self._numbers[targets]
        unseen = np.unique(targets[numbers < 0])
        for target in unseen.tolist():
            self._numbers[target] = self._number(target)
        if unseen.size:
            numbers = self._numbers[targets]
        return numbers.astype(np.uint32)

    def take_fresh(self) -> list[str]:
        """Names that got the next numbers since this was asked last."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _number(self, target: int) -> int:
        source = int(np.searchsorted(self._bases, target, "right")) - 1
        name = self._sources[source][target - int(self._bases[source])]
        number = self._by_name.get(name)
        if number is None:
            if len(self._by_name) >= MOST_REMEMBERED:
                self._by_name.clear()
            number = self._by_name[name] = self._count
            self._count += 1
            self._fresh.append(name)
        return number
