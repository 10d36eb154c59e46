"""Entries as columns: half the memory of tuples, and ready to be written."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.shard.memory.target_numbers import UNNAMED, TargetNumbers, resolved
from storage.store import Column, Entry, Key, Scanned, Wants


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
    """Columns of equal length, as they go to disk: `targets` are numbers, and the names of those
    that have none stand before the `bodies`. Never changed once made."""

    __slots__ = ("bodies", "crcs", "dues_ms", "offsets", "targets")

    def __init__(
        self,
        dues_ms: Column,
        offsets: Column,
        targets: Column,
        crcs: Column,
        bodies: list[bytes],
    ) -> None:
        self.dues_ms, self.offsets, self.targets, self.crcs = dues_ms, offsets, targets, crcs
        self.bodies = bodies

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
        )

    def part(self, start: int, stop: int) -> "Columns":
        """The entries at indices from `start` up to `stop`."""
        return Columns(
            self.dues_ms[start:stop],
            self.offsets[start:stop],
            self.targets[start:stop],
            self.crcs[start:stop],
            self.bodies[start:stop],
        )

    def in_due_order(self) -> "Columns":
        """The entries sorted by due; those of one due keep their order."""
        return self.taken(np.argsort(self.dues_ms, kind="stable"))

    def first_beyond(self, after: Key, most: int) -> tuple["Columns", Key | None]:
        """Of entries in order the first `most` beyond `after`, and the last of these, None if that
        is all there are."""
        start = count_upto(self.dues_ms, self.offsets, after)
        stop = min(start + most, len(self))
        last = int(self.dues_ms[stop - 1]), int(self.offsets[stop - 1])
        return self.part(start, stop), last if stop < len(self) else None

    def entries(self, names: Mapping[int, str]) -> list[Entry]:
        """The entries as tuples; `names` by number."""
        targets, bodies = resolved(names, self.targets, self.bodies)
        dues_ms, offsets = self.dues_ms.tolist(), self.offsets.tolist()
        return list(zip(dues_ms, offsets, targets, bodies, strict=True))


def columns_of(
    entries: Sequence[Entry], numbers: TargetNumbers, dues_ms: Column, offsets: Column
) -> Columns:
    """The entries, with these dues and offsets, as columns in the same order."""
    targets, bodies = numbers.columns_of(entries)
    crcs = np.fromiter(map(crc32, bodies), np.int64, len(bodies))
    return Columns(dues_ms, offsets, targets, crcs, bodies)


def columns_joined(parts: Iterable[Columns]) -> Columns:
    """All parts as one."""
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
    )


def columns_scanned(
    parts: Sequence[Columns],
    names: Mapping[int, str],
    after: Key,
    upto: Key,
    wants: Wants,
    max_entries: int,
) -> Scanned:
    """The first wanted entries beyond `after` up to `upto` of all parts, in order; `names` by
    number."""
    if not parts:
        return Scanned([], upto)
    dues_ms = np.concatenate([part.dues_ms for part in parts])
    offsets = np.concatenate([part.offsets for part in parts])
    targets = np.concatenate([part.targets for part in parts])
    beyond = are_beyond(dues_ms, offsets, after) & ~are_beyond(dues_ms, offsets, upto)
    at = np.flatnonzero(beyond)
    if wants is not None:
        met = np.unique(targets[at]).tolist()
        wanted = [number for number in met if number == UNNAMED or wants(names[number])]
        at = at[np.isin(targets[at], wanted)]
    if at.size > max_entries:
        at = at[dues_ms[at] <= np.partition(dues_ms[at], max_entries - 1)[max_entries - 1]]
        at = at[np.lexsort((offsets[at], dues_ms[at]))][:max_entries]
        upto = int(dues_ms[at[-1]]), int(offsets[at[-1]])
    entries = _entries_at(parts, at, (dues_ms, offsets, targets), names)
    return Scanned([e for e in entries if wants is None or wants(e[2])], upto)


def _entries_at(
    parts: Sequence[Columns],
    at: Column,
    joined: tuple[Column, Column, Column],
    names: Mapping[int, str],
) -> list[Entry]:
    """The entries at these places of all parts joined."""
    ends = np.cumsum([len(part) for part in parts])
    which = np.searchsorted(ends, at, "right")
    within = at - (ends - [len(part) for part in parts])[which]
    places = zip(which.tolist(), within.tolist(), strict=True)
    bodies = [parts[part].bodies[place] for part, place in places]
    dues_ms, offsets, targets = (column[at] for column in joined)
    found, bodies = resolved(names, targets, bodies)
    return list(zip(dues_ms.tolist(), offsets.tolist(), found, bodies, strict=True))
