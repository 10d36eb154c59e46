"""One sorted run of ids on disk: mapped, never changed once it counts."""

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.ids.runs.bloom_filter import BloomFilter, bits_of
from storage.ids.runs.idents import Hashing, Words, gathered, texts
from storage.ids.runs.layout import (
    MAGIC,
    ROW,
    Rows,
    RunContents,
    RunSummary,
    TombstoneColumns,
    is_useless,
    taken,
)
from storage.ids.runs.names import MappedNames
from storage.ids.runs.row_checks import are_whole
from storage.register import Key, Named
from storage.shard.memory.columns import are_beyond
from storage.store import Column

SUFFIX = ".run"
CHECKED_BYTES = 4 * 1024 * 1024
SAMPLE_ROWS = 256
READ_AT_ONCE = ("hashes", "filter", "name_ends", "names", "fires_ms", "offsets", "targets")
"""Sections that are read whole on opening, or by every lookup."""
NOWHERE = np.zeros(0, np.int64)
_TARGET = Named._fields.index("target")


def path_of(folder: Path, number: int) -> Path:
    """The file of run `number`."""
    return folder / f"{number}{SUFFIX}"


class Run:
    """What a run's file says; `hashing` made its hashes. Pages are read when they are touched, so
    the file must stay whole; it may be removed meanwhile. Raises StoreDamaged."""

    def __init__(self, folder: Path, summary: RunSummary, hashing: Hashing) -> None:
        self.summary = summary
        self._hashing = hashing
        self.path = path_of(folder, summary.number)
        self._data = _mapped(self.path, summary.file_bytes)
        self._positions = summary.bounds.positions()
        self._lengths = summary.lengths()
        if bytes(self._data[: len(MAGIC)]) != MAGIC:
            raise StoreDamaged(f"{self.path} is of another version")
        self._check_at_once(*READ_AT_ONCE)
        self.contents = self._contents()
        words = np.frombuffer(self._bytes("filter"), np.dtype("<u8"))
        self._filter = BloomFilter(words, summary.bounds.filter_power)
        self._sample: Rows | None = None

    @property
    def size(self) -> int:
        """How many ids and tombstones it holds."""
        return self.contents.size

    def find(self, hashes: Words, ids: Sequence[bytes]) -> tuple[Column, list[Named]]:
        """Indices of those of `ids`, whose hashes are given, that are in this run, and what is
        known of them. Raises StoreDamaged."""
        asked, places = self._candidates(hashes, bits_of(hashes))
        indices, found = [NOWHERE], list[Named]()
        while asked.size:
            rows = taken(self.contents.rows, places)
            wanted = map(ids.__getitem__, asked.tolist())
            idents = self._idents(rows, hashes[asked])
            is_same = np.fromiter(map(eq, wanted, idents), np.bool_, asked.size)
            indices.append(asked[is_same])
            found += self._named(taken(rows, is_same))
            asked, places = self._of_equal_hash(hashes, asked[~is_same], places[~is_same] + 1)
        return np.concatenate(indices), found

    def has_hash(self, hashes: Words) -> npt.NDArray[np.bool_]:
        """For each of `hashes` whether some id in this run has it."""
        has = np.zeros(hashes.size, np.bool_)
        has[self._candidates(hashes, bits_of(hashes))[0]] = True
        return has

    def has_any(self, hashes: Words, bits: Words) -> bool:
        """Whether some id in this run has one of `hashes`, whose bits are given."""
        return bool(self._candidates(hashes, bits)[0].size)

    def of_kind(self, bit: int, ended: Key, most_rows: int) -> Iterator[list[bytes]]:
        """Ids with this bit of `kind` and a key beyond `ended`, found in so many rows at a time."""
        for start in range(0, self.contents.hashes.size, most_rows):
            hashes = self.contents.hashes[start : start + most_rows]
            rows = self.contents.rows[start : start + most_rows]
            self._check_rows(rows, hashes)
            beyond = are_beyond(rows["fires_ms"], rows["offset"], ended)
            is_wanted = beyond & ((rows["kind"] & np.uint32(bit)) != 0)
            if is_wanted.any():
                yield self._idents(taken(rows, is_wanted), hashes[is_wanted])

    def useless_rows(self, floor: int, ended: Key) -> int:
        """About how many of its ids (judged by a sample) and tombstones may be forgotten."""
        if self._sample is None:
            step = max(1, self.contents.rows.size // SAMPLE_ROWS)
            self._sample = self.contents.rows[::step].copy()
        useless = int(np.count_nonzero(is_useless(self._sample, floor, ended)))
        ids = useless * int(self.contents.rows.size) // max(1, self._sample.size)
        return ids + self.contents.tombstones.upto(ended)

    def check(self) -> Iterator[int]:
        """Hold the whole file against its CRCs; yields bytes read. Raises StoreDamaged."""
        for name in self._lengths:
            crc, data = 0, self._bytes(name)
            for start in range(0, len(data), CHECKED_BYTES):
                crc = crc32(data[start : start + CHECKED_BYTES], crc)
                yield min(CHECKED_BYTES, len(data) - start)
            self._compare(name, crc)

    def _idents(self, rows: Rows, hashes: Words) -> list[bytes]:
        """The ids of some rows, with their hashes: what is here is not taken for another id."""
        self._check_rows(rows, hashes)
        idents = gathered(self.contents.words, rows["word"], rows["size"].astype(np.int64))
        if (self._hashing(idents) != hashes).any():
            raise StoreDamaged(f"{self.path} has an id that is not the one of its hash")
        return texts(idents)

    def _check_rows(self, rows: Rows, hashes: Words) -> None:
        if not are_whole(rows, hashes):
            raise StoreDamaged(f"{self.path} has a row that fails its checksum")

    def _named(self, rows: Rows) -> list[Named]:
        names = self.contents.names
        columns: list[Iterable[Any]] = [rows[name].tolist() for name in Named._fields]
        columns[_TARGET] = map(names.__getitem__, columns[_TARGET])
        return list(map(Named._make, zip(*columns, strict=True)))

    def _candidates(self, hashes: Words, bits: Words) -> tuple[Column, Column]:
        """Indices of the hashes that some id here has, and the place of the first such id."""
        asked = self._filter.passing(hashes, bits)
        if not asked.size:
            return NOWHERE, NOWHERE
        places = np.searchsorted(self.contents.hashes, hashes[asked])
        return self._of_equal_hash(hashes, asked, places)

    def _of_equal_hash(self, hashes: Words, asked: Column, places: Column) -> tuple[Column, Column]:
        """Those of `asked` whose hash is that of the id at its place, and the places."""
        is_equal = self.contents.hashes.take(places, mode="clip") == hashes[asked]
        is_equal &= places < self.contents.hashes.size
        return asked[is_equal], places[is_equal]

    def _check_at_once(self, *names: str) -> None:
        for name in names:
            self._compare(name, crc32(self._bytes(name)))

    def _compare(self, name: str, crc: int) -> None:
        if crc != self.summary.crcs[name]:
            raise StoreDamaged(f"{self.path} fails the CRC of its {name}")

    def _bytes(self, name: str) -> memoryview:
        start = self._positions[name]
        return self._data[start : start + self._lengths[name]]

    def _contents(self) -> RunContents:
        fires_ms = np.frombuffer(self._bytes("fires_ms"), np.dtype("<i8"))
        offsets = np.frombuffer(self._bytes("offsets"), np.dtype("<i8"))
        return RunContents(
            hashes=np.frombuffer(self._bytes("hashes"), np.dtype("<u8")),
            rows=np.frombuffer(self._bytes("rows"), ROW),
            words=np.frombuffer(self._bytes("words"), np.dtype("<u8")),
            tombstones=TombstoneColumns(
                fires_ms, offsets, np.frombuffer(self._bytes("targets"), "<u4")
            ),
            names=MappedNames(
                np.frombuffer(self._bytes("name_ends"), np.dtype("<i8")), self._bytes("names")
            ),
        )


def _mapped(path: Path, size_bytes: int) -> memoryview:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing") from None
    try:
        found = os.fstat(fd).st_size
        if found != size_bytes:
            raise StoreDamaged(f"{path} has {found} bytes instead of {size_bytes}")
        return memoryview(mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ))
    finally:
        os.close(fd)
