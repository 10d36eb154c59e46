"""Several sources become one run, in steps small enough to fall between two transactions."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.ids.runs.idents import (
    WORD_BYTES,
    Idents,
    Words,
    gathered,
    same,
    words_of,
)
from storage.ids.runs.layout import (
    Rows,
    RunBounds,
    RunContents,
    RunSummary,
    TombstoneColumns,
    is_useless,
    joined,
    taken,
)
from storage.ids.runs.names import MergedNames
from storage.ids.runs.run import Run
from storage.ids.runs.run_writer import RunWriter
from storage.register import Key
from storage.shard.files import Files
from storage.store import Column

STEP_BYTES = 2 * 1024 * 1024
"""Bytes of ids copied in one step, unless one id alone is larger."""


class Ended(NamedTuple):
    """What has ended: offsets below the floor, and keys at or below the watermark."""

    floor: int
    key: Key


class Merge:
    """Copies `sources`, oldest first, into a new run; of an id in several the newest is kept.

    Left out are tombstones that have ended and ids that may be forgotten. The latter only when no
    run of `older` has their hash: an older row of the id would come to light again there."""

    def __init__(
        self,
        sources: Sequence[RunContents],
        older: Sequence[Run],
        ended: Callable[[], Ended],
        most_rows: int,
    ) -> None:
        self.summary: RunSummary | None = None
        self._sources = sources
        self._older = older
        self._ended = ended
        self._bounds = RunBounds(
            ids=sum(source.hashes.size for source in sources),
            words=sum(source.words.size for source in sources),
            tombstones=sum(source.tombstones.offsets.size for source in sources),
            names=sum(len(source.names) for source in sources),
        )
        mean_bytes = 1 + self._bounds.words * WORD_BYTES // max(1, self._bounds.ids)
        self._most_rows = max(1, min(most_rows, STEP_BYTES // mean_bytes))
        self._names = MergedNames(sources)
        self._writer: RunWriter | None = None

    def steps(self, folder: Path, number: int, files: Files) -> Iterator[None]:
        """Do it. `summary` then says what was written, None if nothing is left to write."""
        writer = self._writer = RunWriter(folder, number, self._bounds, files)
        for starts, ends in self._id_slices():
            self._write_ids(writer, starts, ends)
            writer.add_names(self._names.take_fresh())
            yield
        for starts, ends in self._tombstone_slices():
            self._write_tombstones(writer, starts, ends)
            writer.add_names(self._names.take_fresh())
            yield
        if not writer.size:
            writer.undo()
            return
        yield from writer.finish()
        self.summary = writer.summary()

    def undo(self) -> None:
        """Give up: as if nothing had been written."""
        if self._writer is not None:
            self._writer.undo()

    def close(self) -> None:
        """Give the file back, as a crash would."""
        if self._writer is not None:
            self._writer.close()

    def _id_slices(self) -> Iterator[tuple[list[int], list[int]]]:
        """Places in each source that hold the next hashes, about `most_rows` together."""
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
        """The slices of all sources as one, with `word` and `target` made to fit that."""
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
    """The place in each source up to which its share of the next `most_rows` rows lies.

    -1 for a source that has no more rows, None when none has."""
    left = [size - start for start, size in zip(starts, sizes, strict=True)]
    total = sum(left)
    if not total:
        return None
    shares = [max(1, min(rows, most_rows * rows // total)) if rows else 0 for rows in left]
    return [start + share - 1 if share else -1 for start, share in zip(starts, shares, strict=True)]


def _is_newest(hashes: Words, rows: Rows, words: Words, order: Column) -> npt.NDArray[np.bool_]:
    """Which rows, taken in `order` (by hash, the newest of an id first), are the newest of theirs.

    Rows of one hash nearly always have one id: each is compared with the first of its hash, and
    only where that does not settle it are they looked at one by one."""
    is_newest = np.ones(order.size, np.bool_)
    sorted_hashes = hashes[order]
    repeats = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1]) + 1
    if not repeats.size:
        return is_newest
    is_first = np.ones(order.size, np.bool_)
    is_first[repeats] = False
    firsts = np.maximum.accumulate(np.where(is_first, np.arange(order.size), 0))[repeats]
    later, first = taken(rows, order[repeats]), taken(rows, order[firsts])
    is_same = later["size"] == first["size"]
    alike = later[is_same]
    is_same[is_same] = same(
        words, alike["word"], first["word"][is_same], alike["size"].astype(np.int64)
    )
    is_newest[repeats[is_same]] = False
    for start in np.unique(firsts[~is_same]).tolist():
        _settle_collision(taken(rows, order), words, repeats[firsts == start], start, is_newest)
    return is_newest


def _settle_collision(
    rows: Rows, words: Words, repeats: Column, start: int, is_newest: npt.NDArray[np.bool_]
) -> None:
    """Mark the rows of one hash, from place `start` on, that have an id met before."""
    met: set[bytes] = set()
    for place in [start, *repeats.tolist()]:
        row = rows[place : place + 1]
        idents: Idents = gathered(words, row["word"], row["size"].astype(np.int64))
        ident = idents.words.tobytes() + int(row["size"][0]).to_bytes(8, "little")
        is_newest[place] = ident not in met
        met.add(ident)
