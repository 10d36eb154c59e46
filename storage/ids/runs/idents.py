"""Ids as arrays: padded to whole words, so that they are hashed, gathered and compared at once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.store import Column

Words: TypeAlias = npt.NDArray[np.uint64]
WORD_BYTES = 8
_WIDEST = 64
"""Ids up to this size are padded as a matrix: each batch takes rows as wide as its longest id."""


class Idents(NamedTuple):
    """Ids side by side: each takes `sizes` bytes from word number `starts` of `words` on, followed
    by zeros to the end of its last word; an empty id takes a word, too."""

    words: Words
    starts: Column
    sizes: Column


Hashing: TypeAlias = Callable[[Idents], Words]
"""Gives the hash of each id; equal ids have equal hashes, in every process and batch."""


def words_of(sizes: Column) -> Column:
    """How many words ids of so many bytes take."""
    return np.maximum((sizes + (WORD_BYTES - 1)) // WORD_BYTES, 1)


def padded(ids: Sequence[bytes]) -> Idents:
    """Copy ids into words."""
    lengths = set(map(len, ids))
    if len(lengths) == 1:
        return _padded_alike(ids, lengths.pop())
    sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    counts = words_of(sizes)
    widest = int(counts.max(initial=1))
    if widest * WORD_BYTES <= _WIDEST:
        matrix = np.array(ids, f"S{widest * WORD_BYTES}").view("<u8").reshape(len(ids), widest)
        is_even = int(counts.min(initial=widest)) == widest
        words = matrix.ravel() if is_even else matrix[np.arange(widest) < counts[:, np.newaxis]]
    else:
        rooms = (counts * WORD_BYTES).tolist()
        parts = [ident.ljust(room, b"\0") for ident, room in zip(ids, rooms, strict=True)]
        words = np.frombuffer(b"".join(parts), "<u8")
    return Idents(words, np.cumsum(counts) - counts, sizes)


def _padded_alike(ids: Sequence[bytes], size_bytes: int) -> Idents:
    """Copy ids of one size into words."""
    sizes = np.full(len(ids), size_bytes)
    width = int(words_of(sizes[:1])[0])
    gap = bytes(width * WORD_BYTES - size_bytes)
    words = np.frombuffer(gap.join(ids) + gap, "<u8")
    return Idents(words, np.arange(len(ids)) * width, sizes)


def gathered(words: Words, starts: Column, sizes: Column) -> Idents:
    """The ids at `starts` of `words`, copied side by side in this order."""
    counts = words_of(sizes)
    width = int(counts[0]) if counts.size else 1
    if words.size % width == 0 and (counts == width).all() and not (starts % width).any():
        rows = words.reshape(-1, width).take(starts // width, axis=0)
        return Idents(rows.ravel(), np.arange(counts.size) * width, sizes)
    ends = np.cumsum(counts)
    firsts = ends - counts
    total = int(ends[-1]) if ends.size else 0
    return Idents(words[np.repeat(starts - firsts, counts) + np.arange(total)], firsts, sizes)


def texts(idents: Idents) -> list[bytes]:
    """The ids as bytes."""
    data = idents.words.tobytes()
    starts = idents.starts * WORD_BYTES
    ends = starts + idents.sizes
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def same(words: Words, starts: Column, others: Column, sizes: Column) -> npt.NDArray[np.bool_]:
    """Whether the ids at `starts` equal those at `others`, pair by pair, both of these sizes."""
    mine, theirs = gathered(words, starts, sizes), gathered(words, others, sizes)
    if not mine.starts.size:
        return np.zeros(0, np.bool_)
    return np.logical_and.reduceat(mine.words == theirs.words, mine.starts)
