"""Entries as columns and bodies, ready to be written: a third of the memory of tuples."""

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import itemgetter
from zlib import crc32

import numpy as np
import numpy.typing as npt

from storage.counts import offsets_of
from storage.records import Column
from storage.store import Codec, Entry

_due_of = itemgetter(0)
_target_of = itemgetter(2)

COLUMNS_BYTES = 80
"""What an entry takes beside its body: four numbers, a reference, the object's header."""


class Encoded:
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

    def taken(self, at: Column) -> "Encoded":
        """The entries at these indices, in their order."""
        bodies = self.bodies
        return Encoded(
            self.dues_ms[at],
            self.offsets[at],
            self.targets[at],
            self.crcs[at],
            [bodies[index] for index in at.tolist()],
            self.names,
        )

    def split(self, until_ms: int) -> tuple["Encoded", "Encoded"]:
        """The entries due at or before `until_ms`, and the others."""
        early = self.dues_ms <= until_ms
        return self._chosen(early), self._chosen(~early)

    def decoded(self, codec: Codec) -> list[Entry]:
        """The entries as tuples again."""
        names = self.names
        return codec.decode(
            self.dues_ms.tolist(),
            self.offsets.tolist(),
            [names[number] for number in self.targets.tolist()],
            self.bodies,
        )

    def _chosen(self, mask: npt.NDArray[np.bool_]) -> "Encoded":
        return Encoded(
            self.dues_ms[mask],
            self.offsets[mask],
            self.targets[mask],
            self.crcs[mask],
            list(compress(self.bodies, mask.tolist())),
            self.names,
        )


class Encoder:
    """Encodes entries with a codec; numbers target names for all that it has encoded."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def encode(self, entries: Sequence[Entry], dues_ms: Column | None = None) -> Encoded:
        """The entries as columns, in the same order; `dues_ms` where the caller has them."""
        bodies = self._codec.encode(entries)
        count = len(bodies)
        if dues_ms is None:
            dues_ms = np.fromiter(map(_due_of, entries), np.int64, count)
        return Encoded(
            dues_ms,
            offsets_of(entries),
            self._number(entries, count),
            np.fromiter(map(crc32, bodies), np.int64, count),
            bodies,
            self._names,
        )

    def joined(self, parts: Iterable[Encoded]) -> Encoded:
        """All parts, which this encoder has made, as one."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        empty = [np.zeros(0, np.int64)]
        return Encoded(
            np.concatenate([part.dues_ms for part in parts] or empty),
            np.concatenate([part.offsets for part in parts] or empty),
            np.concatenate([part.targets for part in parts] or empty),
            np.concatenate([part.crcs for part in parts] or empty),
            [body for part in parts for body in part.bodies],
            self._names,
        )

    def _number(self, entries: Sequence[Entry], count: int) -> Column:
        numbers = self._numbers
        for name in set(map(_target_of, entries)) - numbers.keys():
            numbers[name] = len(self._names)
            self._names.append(name)
        return np.fromiter(map(numbers.__getitem__, map(_target_of, entries)), np.int64, count)
