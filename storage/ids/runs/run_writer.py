"""Writes one run; until the manifest names it, its file counts for nothing."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.ids.runs.bloom_filter import BloomFilter
from storage.ids.runs.idents import Idents, Words
from storage.ids.runs.layout import MAGIC, Rows, RunBounds, RunSummary, TombstoneColumns
from storage.ids.runs.row_checks import seal
from storage.ids.runs.run import path_of
from storage.shard.files import Files

FILTER_WRITTEN_WORDS = 128 * 1024


class RunWriter:
    """Fills the sections of a run's file, each from its front."""

    def __init__(self, folder: Path, number: int, bounds: RunBounds, files: Files) -> None:
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
        """Append ids, whose hashes are at or beyond the last ones; sets where `rows` find them, and
        seals these."""
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
        """Append tombstones, all beyond the last ones."""
        self.size += int(tombstones.offsets.size)
        for name, column in tombstones._asdict().items():
            self._append(name, column)

    def add_names(self, names: Sequence[str]) -> None:
        """Append names of targets: they have the next numbers."""
        if names:
            texts = [name.encode() for name in names]
            ends = self._used["names"] + np.cumsum([len(text) for text in texts])
            self._append("name_ends", ends.astype("<i8"))
            self._append("names", np.frombuffer(b"".join(texts), np.uint8))

    def finish(self) -> Iterator[None]:
        """Write the filter, in steps; `summary` then says what the file holds."""
        words = self._filter.words
        for start in range(0, words.size, FILTER_WRITTEN_WORDS):
            self._append("filter", words[start : start + FILTER_WRITTEN_WORDS])
            yield
        self._files.write(self._fd, MAGIC, 0)
        self._files.resize(self._fd, self.summary().file_bytes)
        self.close()

    def summary(self) -> RunSummary:
        """What the manifest has to say of this run."""
        used = self._used
        return RunSummary(
            number=self._number,
            bounds=self._bounds,
            ids=used["hashes"] // 8,
            words=used["words"] // 8,
            tombstones=used["offsets"] // 8,
            names=used["name_ends"] // 8,
            names_bytes=used["names"],
            crcs=dict(self._crcs),
        )

    def undo(self) -> None:
        """Remove the file."""
        self.close()
        with suppress(OSError):
            self._files.remove(self.path)

    def close(self) -> None:
        """Give the file back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, name: str, column: npt.NDArray[np.generic]) -> None:
        data = np.ascontiguousarray(column).view(np.uint8).data
        self._files.write(self._fd, data, self._positions[name] + self._used[name])
        self._crcs[name] = crc32(data, self._crcs[name])
        self._used[name] += len(data)
