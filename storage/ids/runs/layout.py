"""What a run holds, and where in its file (storage/FORMAT.md, "Ids")."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.ids.runs.bloom_filter import filter_power
from storage.ids.runs.idents import Words, gathered
from storage.register import Key
from storage.shard.memory.columns import are_beyond, count_upto
from storage.store import Column

Rows: TypeAlias = npt.NDArray[np.void]
MAGIC = b"KDPIDS05"
ROW = np.dtype(
    [
        ("latest", "<i8"),
        ("fires_ms", "<i8"),
        ("offset", "<i8"),
        ("origin", "<i8"),
        ("due_ms", "<i8"),
        ("word", "<i8"),
        ("size", "<u4"),
        ("target", "<u4"),
        ("kind", "<u4"),
        ("check", "<u4"),
    ]
)
ROW_BYTES = ROW.itemsize
_OPAQUE = np.dtype((np.void, ROW_BYTES))
FILTER_BITS = 32
"""Bits of the filter for each id, at least: one in 1,000 unknown ids passes it, at most."""


class TombstoneColumns(NamedTuple):
    """Keys of deleted entries in their order, as columns; `targets` are places in a run's names."""

    fires_ms: Column
    offsets: Column
    targets: npt.NDArray[np.uint32]

    def upto(self, key: Key) -> int:
        """How many are at or below `key`."""
        return count_upto(self.fires_ms, self.offsets, key)

    def key(self, place: int) -> Key:
        """The key at this place."""
        return int(self.fires_ms[place]), int(self.offsets[place])

    def part(self, start: int, end: int) -> "TombstoneColumns":
        """Those at places from `start` up to `end`."""
        place = slice(start, end)
        return TombstoneColumns(self.fires_ms[place], self.offsets[place], self.targets[place])


NO_TOMBSTONES = TombstoneColumns(
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint32)
)


@dataclass(frozen=True, slots=True)
class RunContents:
    """Ids in the order of their hashes: `rows` (ROW) say what is known and where in `words` the
    ids themselves are, in the same order. `names`: targets by number; one may come twice."""

    hashes: Words
    rows: Rows
    words: Words
    tombstones: TombstoneColumns
    names: Sequence[str]

    @property
    def size(self) -> int:
        """How many ids and tombstones there are."""
        return int(self.hashes.size) + int(self.tombstones.offsets.size)


def in_hash_order(hashes: Words, rows: Rows, words: Words) -> RunContents:
    """Contents without tombstones and names; `rows` say where in `words` their ids lie."""
    order = np.argsort(hashes)
    ordered = taken(rows, order)
    idents = gathered(words, ordered["word"], ordered["size"].astype(np.int64))
    ordered["word"] = idents.starts
    return RunContents(hashes[order], ordered, idents.words, NO_TOMBSTONES, [])


@dataclass(frozen=True, slots=True)
class RunBounds:
    """The most that a run may come to hold: known before it is written, and its file's shape."""

    ids: int
    words: int
    tombstones: int
    names: int

    @property
    def filter_power(self) -> int:
        """The filter has two to this many bits."""
        return filter_power(self.ids, FILTER_BITS)

    def positions(self) -> dict[str, int]:
        """Where each section of the file begins, in bytes; the names come last."""
        rooms = {
            "hashes": 8 * self.ids,
            "rows": ROW_BYTES * self.ids,
            "filter": (1 << self.filter_power) // 8,
            "fires_ms": 8 * self.tombstones,
            "offsets": 8 * self.tombstones,
            "targets": 4 * self.tombstones,
            "words": 8 * self.words,
            "name_ends": 8 * self.names,
            "names": 0,
        }
        found, position = {}, len(MAGIC)
        for name, room_bytes in rooms.items():
            found[name] = position
            position += -(-room_bytes // 8) * 8
        return found


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What the manifest keeps of a run: its file's number, its bounds, how much of that is used,
    and the CRC-32 of each section's used part."""

    number: int
    bounds: RunBounds
    ids: int
    words: int
    tombstones: int
    names: int
    names_bytes: int
    crcs: dict[str, int] = field(default_factory=dict)

    def lengths(self) -> dict[str, int]:
        """Bytes used of each section."""
        return {
            "hashes": 8 * self.ids,
            "rows": ROW_BYTES * self.ids,
            "filter": (1 << self.bounds.filter_power) // 8,
            "fires_ms": 8 * self.tombstones,
            "offsets": 8 * self.tombstones,
            "targets": 4 * self.tombstones,
            "words": 8 * self.words,
            "name_ends": 8 * self.names,
            "names": self.names_bytes,
        }

    @property
    def file_bytes(self) -> int:
        """The file's size."""
        return self.bounds.positions()["names"] + self.names_bytes

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        used = [self.ids, self.words, self.tombstones, self.names, self.names_bytes]
        bounds = [self.bounds.ids, self.bounds.words, self.bounds.tombstones, self.bounds.names]
        return {"number": self.number, "bounds": bounds, "used": used, "crcs": self.crcs}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "RunSummary":
        """The reverse of `to_json`."""
        ids, words, tombstones, names, names_bytes = found["used"]
        bounds, crcs = RunBounds(*found["bounds"]), found["crcs"]
        return cls(found["number"], bounds, ids, words, tombstones, names, names_bytes, crcs)


def taken(rows: Rows, at: Column | npt.NDArray[np.bool_]) -> Rows:
    """A copy of the rows at these places (as plain bytes: numpy copies fields one by one)."""
    found: Rows = rows.view(_OPAQUE)[at].view(ROW)
    return found


def joined(parts: Sequence[Rows]) -> Rows:
    """A copy of all parts as one array."""
    found: Rows = np.concatenate([part.view(_OPAQUE) for part in parts]).view(ROW)
    return found


def is_useless(rows: Rows, floor: int, ended: Key) -> npt.NDArray[np.bool_]:
    """Which rows may be forgotten: ids whose last record and entry lie below the floor, the entry
    at or below the watermark."""
    offsets = rows["offset"]
    is_old = np.maximum(rows["latest"], offsets) < floor
    waits = are_beyond(rows["fires_ms"], offsets, ended) & (offsets >= 0)
    useless: npt.NDArray[np.bool_] = is_old & ~waits
    return useless
