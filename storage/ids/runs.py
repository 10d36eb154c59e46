"""Runs of ids on disk: reading, writing and merging."""

import mmap
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.folder import Files
from storage.ids.layout import (
    MAGIC,
    ROW,
    WORD_BYTES,
    BloomFilter,
    Hashing,
    Idents,
    MappedNames,
    MergedNames,
    Rows,
    RunContents,
    RunSize,
    RunSummary,
    TombstoneColumns,
    Words,
    are_whole,
    bits_of,
    gathered,
    idents_of,
    is_useless,
    joined,
    seal,
    taken,
    texts,
    words_of,
)
from storage.memtable import are_beyond
from storage.store import Column, Key, Named

SUFFIX = ".run"
CHECKED_BYTES = 4 * 1024 * 1024
SAMPLE_ROWS = 256
READ_AT_ONCE = ("hashes", "filter", "name_ends", "names", "fires_ms", "offsets", "targets")
"""Sections that the opening or every lookup reads whole. The opening checks their CRCs."""
NOWHERE = np.zeros(0, np.int64)
_TARGET = Named._fields.index("target")


def path_of(folder: Path, number: int) -> Path:
    """Return the path of run `number`."""
    return folder / f"{number}{SUFFIX}"


class Run:
    """A sorted, mapped run on disk. Its file may be removed while the run is in use."""

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
        return self.contents.size

    def find(self, hashes: Words, ids: Sequence[bytes]) -> tuple[Column, list[Named]]:
        """Return the indices of known `ids`, and their states."""
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
        has = np.zeros(hashes.size, np.bool_)
        has[self._candidates(hashes, bits_of(hashes))[0]] = True
        return has

    def has_any(self, hashes: Words, bits: Words) -> bool:
        """Return whether an id of this run has one of `hashes`. `bits` are their filter bits."""
        return bool(self._candidates(hashes, bits)[0].size)

    def of_kind(self, bit: int, ended: Key, most_rows: int) -> Iterator[list[bytes]]:
        """Yield batches of ids with this bit of `kind`, and with entries beyond `ended`."""
        for start in range(0, self.contents.hashes.size, most_rows):
            hashes = self.contents.hashes[start : start + most_rows]
            rows = self.contents.rows[start : start + most_rows]
            self._check_rows(rows, hashes)
            beyond = are_beyond(rows["fires_ms"], rows["offset"], ended)
            is_wanted = beyond & ((rows["kind"] & np.uint32(bit)) != 0)
            if is_wanted.any():
                yield self._idents(taken(rows, is_wanted), hashes[is_wanted])

    def useless_rows(self, floor: int, ended: Key) -> int:
        """Estimate the number of ids and tombstones that may be forgotten."""
        if self._sample is None:
            step = max(1, self.contents.rows.size // SAMPLE_ROWS)
            self._sample = self.contents.rows[::step].copy()
        useless = int(np.count_nonzero(is_useless(self._sample, floor, ended)))
        ids = useless * int(self.contents.rows.size) // max(1, self._sample.size)
        return ids + self.contents.tombstones.upto(ended)

    def check(self) -> Iterator[int]:
        """Check all CRCs. Yields the bytes read in each step. Raises StoreDamaged."""
        for name in self._lengths:
            crc, data = 0, self._bytes(name)
            for start in range(0, len(data), CHECKED_BYTES):
                crc = crc32(data[start : start + CHECKED_BYTES], crc)
                yield min(CHECKED_BYTES, len(data) - start)
            self._compare(name, crc)

    def _idents(self, rows: Rows, hashes: Words) -> list[bytes]:
        self._check_rows(rows, hashes)
        idents = idents_of(rows, self.contents.words)
        if (self._hashing(idents) != hashes).any():
            raise StoreDamaged(f"{self.path} has an id that does not match its hash")
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
        """Return the indices of the hashes in this run, and the place of each hash's first row."""
        asked = self._filter.passing(hashes, bits)
        if not asked.size:
            return NOWHERE, NOWHERE
        places = np.searchsorted(self.contents.hashes, hashes[asked])
        return self._of_equal_hash(hashes, asked, places)

    def _of_equal_hash(self, hashes: Words, asked: Column, places: Column) -> tuple[Column, Column]:
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


FILTER_WRITTEN_WORDS = 128 * 1024


class RunWriter:
    """A writer of a run's sections. The file is used once the manifest lists the run."""

    def __init__(self, folder: Path, number: int, bounds: RunSize, files: Files) -> None:
        self.path = path_of(folder, number)
        self.size = 0
        self._number = number
        self._bounds = bounds
        self._files = files
        self._positions = bounds.positions()
        self._used = dict.fromkeys(self._positions, 0)
        self._crcs = dict.fromkeys(self._positions, 0)
        self._words = 0
        self._filter = BloomFilter.empty(bounds.filter_power)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def add_ids(self, hashes: Words, rows: Rows, idents: Idents) -> None:
        rows["word"] = idents.starts + self._words
        rows["size"] = idents.sizes
        seal(rows, hashes)
        self._append("hashes", hashes)
        self._append("rows", rows)
        self._append("words", idents.words)
        self._words += int(idents.words.size)
        self.size += int(hashes.size)
        self._filter.add(hashes)

    def add_tombstones(self, tombstones: TombstoneColumns) -> None:
        self.size += int(tombstones.offsets.size)
        for name, column in tombstones._asdict().items():
            self._append(name, column)

    def add_names(self, names: Sequence[str]) -> None:
        if names:
            texts = [name.encode() for name in names]
            ends = self._used["names"] + np.cumsum([len(text) for text in texts])
            self._append("name_ends", ends.astype("<i8"))
            self._append("names", np.frombuffer(b"".join(texts), np.uint8))

    def finish(self) -> Iterator[None]:
        words = self._filter.words
        for start in range(0, words.size, FILTER_WRITTEN_WORDS):
            self._append("filter", words[start : start + FILTER_WRITTEN_WORDS])
            yield
        self._files.write(self._fd, MAGIC, 0)
        self._files.resize(self._fd, self.summary().file_bytes)
        self.close()

    def summary(self) -> RunSummary:
        used = self._used
        size = RunSize(
            ids=used["hashes"] // 8,
            words=used["words"] // 8,
            tombstones=used["offsets"] // 8,
            names=used["name_ends"] // 8,
            names_bytes=used["names"],
        )
        return RunSummary(self._number, self._bounds, size, dict(self._crcs))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, name: str, column: npt.NDArray[np.generic]) -> None:
        data = np.ascontiguousarray(column).view(np.uint8).data
        self._files.write(self._fd, data, self._positions[name] + self._used[name])
        self._crcs[name] = crc32(data, self._crcs[name])
        self._used[name] += len(data)


STEP_BYTES = 2 * 1024 * 1024
"""Bytes of ids copied in one step. A larger id is copied whole."""


class Ended(NamedTuple):
    """The committed floor and watermark, by which ids may be forgotten."""

    floor: int
    """No lower offset is needed."""
    key: Key
    """The watermark. Entries at or below it have ended."""


class Merge:
    """A merge of `sources` (oldest first) into one run, without ended tombstones and useless ids.

    A useless id stays if a run of `older` has its hash. Otherwise the older row would reappear."""

    def __init__(
        self,
        sources: Sequence[RunContents],
        older: Sequence[Run],
        ended: Callable[[], Ended],
        most_rows: int,
    ) -> None:
        self._sources = sources
        self._older = older
        self._ended = ended
        self._bounds = RunSize(
            ids=sum(source.hashes.size for source in sources),
            words=sum(source.words.size for source in sources),
            tombstones=sum(source.tombstones.offsets.size for source in sources),
            names=sum(len(source.names) for source in sources),
        )
        mean_bytes = 1 + self._bounds.words * WORD_BYTES // max(1, self._bounds.ids)
        self._most_rows = max(1, min(most_rows, STEP_BYTES // mean_bytes))
        self._names = MergedNames(sources)

    def steps(
        self, folder: Path, number: int, files: Files
    ) -> Generator[None, None, RunSummary | None]:
        """Write the run. Return its summary, or None if nothing remained."""
        writer = RunWriter(folder, number, self._bounds, files)
        try:
            for starts, ends in self._id_slices():
                self._write_ids(writer, starts, ends)
                writer.add_names(self._names.take_fresh())
                yield
            for starts, ends in self._tombstone_slices():
                self._write_tombstones(writer, starts, ends)
                writer.add_names(self._names.take_fresh())
                yield
            if not writer.size:
                return None
            yield from writer.finish()
            return writer.summary()
        finally:
            writer.close()

    def _id_slices(self) -> Iterator[tuple[list[int], list[int]]]:
        columns = [source.hashes for source in self._sources]
        starts = [0 for _ in columns]
        while True:
            probes = _probes(starts, [column.size for column in columns], self._most_rows)
            if probes is None:
                return
            found = zip(columns, probes, strict=True)
            pivots = [int(column[probe]) for column, probe in found if probe >= 0]
            pivot = np.uint64(min(pivots))
            ends = [int(np.searchsorted(column, pivot, "right")) for column in columns]
            yield starts, ends
            starts = ends

    def _tombstone_slices(self) -> Iterator[tuple[list[int], list[int]]]:
        columns = [source.tombstones for source in self._sources]
        starts = [column.upto(self._ended().key) for column in columns]
        while True:
            probes = _probes(starts, [column.offsets.size for column in columns], self._most_rows)
            if probes is None:
                return
            found = zip(columns, probes, strict=True)
            pivot = min(column.key(probe) for column, probe in found if probe >= 0)
            ends = [column.upto(pivot) for column in columns]
            yield starts, ends
            starts = ends

    def _write_ids(self, writer: RunWriter, starts: list[int], ends: list[int]) -> None:
        hashes, rows, words = self._newest_first(starts, ends)
        if len(self._sources) > 1:
            order = np.argsort(hashes, kind="stable")
            order = order[_is_newest(hashes, rows, words, order)]
            hashes, rows = hashes[order], taken(rows, order)
        may_go = self._may_go(hashes, rows)
        if may_go.any():
            hashes, rows = hashes[~may_go], taken(rows, ~may_go)
        rows["target"] = self._names.numbered(rows["target"])
        sizes = rows["size"].astype(np.int64)
        is_as_it_lies = len(self._sources) == 1 and not may_go.any()
        idents = (
            Idents(words, rows["word"], sizes)
            if is_as_it_lies
            else gathered(words, rows["word"], sizes)
        )
        writer.add_ids(hashes, rows, idents)

    def _newest_first(self, starts: list[int], ends: list[int]) -> tuple[Words, Rows, Words]:
        hashes, rows, words, at = [], [], [], 0
        for number in reversed(range(len(self._sources))):
            source, start, end = self._sources[number], starts[number], ends[number]
            if start == end:
                continue
            part = joined([source.rows[start:end]])
            first = int(part["word"][0])
            last = int(part["word"][-1]) + int(words_of(part["size"][-1:].astype(np.int64))[0])
            part["word"] += at - first
            part["target"] += self._names.base(number)
            at += last - first
            hashes.append(source.hashes[start:end])
            rows.append(part)
            words.append(source.words[first:last])
        return np.concatenate(hashes), joined(rows), np.concatenate(words)

    def _may_go(self, hashes: Words, rows: Rows) -> npt.NDArray[np.bool_]:
        ended = self._ended()
        useless = is_useless(rows, ended.floor, ended.key)
        asked = np.flatnonzero(useless)
        for run in self._older:
            asked = asked[~run.has_hash(hashes[asked])]
        useless[:] = False
        useless[asked] = True
        return useless

    def _write_tombstones(self, writer: RunWriter, starts: list[int], ends: list[int]) -> None:
        parts = [
            source.tombstones.part(start, end)
            for source, start, end in zip(self._sources, starts, ends, strict=True)
        ]
        fires_ms = np.concatenate([part.fires_ms for part in parts])
        offsets = np.concatenate([part.offsets for part in parts])
        order = np.lexsort((offsets, fires_ms))
        targets = np.concatenate(
            [part.targets + self._names.base(number) for number, part in enumerate(parts)]
        )
        numbers = self._names.numbered(targets[order])
        writer.add_tombstones(TombstoneColumns(fires_ms[order], offsets[order], numbers))


def _probes(starts: list[int], sizes: list[int], most_rows: int) -> list[int] | None:
    """Return for each source the last row of its next slice, or -1 if no row is left."""
    left = [size - start for start, size in zip(starts, sizes, strict=True)]
    total = sum(left)
    if not total:
        return None
    shares = [max(1, min(rows, most_rows * rows // total)) if rows else 0 for rows in left]
    return [start + share - 1 if share else -1 for start, share in zip(starts, shares, strict=True)]


def _is_newest(hashes: Words, rows: Rows, words: Words, order: Column) -> npt.NDArray[np.bool_]:
    is_newest = np.ones(order.size, np.bool_)
    ordered = hashes[order]
    repeats = ordered[1:] == ordered[:-1]
    shared = np.flatnonzero(np.append(repeats, False) | np.insert(repeats, 0, False))
    if not shared.size:
        return is_newest
    found = taken(rows, order[shared])
    met: set[bytes] = set()
    for place, ident in zip(shared.tolist(), texts(idents_of(found, words)), strict=True):
        is_newest[place] = ident not in met
        met.add(ident)
    return is_newest
