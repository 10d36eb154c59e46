"""Entries as columns: half the memory of tuples, and ready to be written."""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.shard.memory.counts import offsets_of
from storage.store import Column, Entry, Key, dues_of

_target_of = itemgetter(2)
_body_of = itemgetter(3)


def count_upto(dues_ms: Column, offsets: Column, key: Key) -> int:
    """How many of the rows, which are in (due, offset) order, are at or below `key`."""
    below = int(np.searchsorted(dues_ms, key[0], "left"))
    same = int(np.searchsorted(dues_ms, key[0], "right"))
    return below + int(np.searchsorted(offsets[below:same], key[1], "right"))


def are_beyond(dues_ms: Column, offsets: Column, key: Key) -> npt.NDArray[np.bool_]:
    """Which of the rows lie beyond `key`."""
    beyond: npt.NDArray[np.bool_] = dues_ms > key[0]
    beyond |= (dues_ms == key[0]) & (offsets > key[1])
    return beyond


class Columns:
    """Columns of equal length; `targets` are places in `names`. Never changed once made."""

    __slots__ = ("bodies", "crcs", "dues_ms", "names", "offsets", "targets")

    def __init__(
        self,
        dues_ms: Column,
        offsets: Column,
        targets: Column,
        crcs: Column,
        bodies: list[bytes],
        names: Sequence[str],
    ) -> None:
        self.dues_ms, self.offsets, self.targets, self.crcs = dues_ms, offsets, targets, crcs
        self.bodies = bodies
        self.names = names

    def __len__(self) -> int:
        return len(self.bodies)

    def taken(self, at: Column) -> "Columns":
        """The entries at these indices, in their order."""
        bodies = self.bodies
        return Columns(
            self.dues_ms[at],
            self.offsets[at],
            self.targets[at],
            self.crcs[at],
            [bodies[index] for index in at.tolist()],
            self.names,
        )

    def part(self, start: int, stop: int) -> "Columns":
        """The entries at indices from `start` up to `stop`."""
        return Columns(
            self.dues_ms[start:stop],
            self.offsets[start:stop],
            self.targets[start:stop],
            self.crcs[start:stop],
            self.bodies[start:stop],
            self.names,
        )

    def in_due_order(self) -> "Columns":
        """The entries sorted by due; those of one due keep their order."""
        return self.taken(np.argsort(self.dues_ms, kind="stable"))

    def entries(self) -> list[Entry]:
        """The entries as tuples."""
        names = self.names
        targets = [names[number] for number in self.targets.tolist()]
        dues_ms, offsets = self.dues_ms.tolist(), self.offsets.tolist()
        return list(zip(dues_ms, offsets, targets, self.bodies, strict=True))


class ColumnMaker:
    """Makes columns of entries; numbers target names alike for all that it has made."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def made_of(self, entries: Sequence[Entry]) -> Columns:
        """The entries as columns, in the same order."""
        bodies = list(map(_body_of, entries))
        return Columns(
            dues_of(entries),
            offsets_of(entries),
            self._number(entries),
            np.fromiter(map(crc32, bodies), np.int64, len(bodies)),
            bodies,
            self._names,
        )

    def joined(self, parts: Iterable[Columns]) -> Columns:
        """All parts, which this maker has made, as one."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        empty = [np.zeros(0, np.int64)]
        return Columns(
            np.concatenate([part.dues_ms for part in parts] or empty),
            np.concatenate([part.offsets for part in parts] or empty),
            np.concatenate([part.targets for part in parts] or empty),
            np.concatenate([part.crcs for part in parts] or empty),
            [body for part in parts for body in part.bodies],
            self._names,
        )

    def _number(self, entries: Sequence[Entry]) -> Column:
        numbers = self._numbers
        for name in set(map(_target_of, entries)) - numbers.keys():
            numbers[name] = len(self._names)
            self._names.append(name)
        found = map(numbers.__getitem__, map(_target_of, entries))
        return np.fromiter(found, np.int64, len(entries))
