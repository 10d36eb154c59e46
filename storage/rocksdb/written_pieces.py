"""About when the entries in a sorted place on disk are due, remembered by pieces."""

from collections.abc import Sequence
from itertools import pairwise

from storage.shard.memory.due_histogram import DueHistogram, Piece
from storage.store import Column, Entry

PIECES_A_MEMTABLE = 16
MOST_PIECES = 4096


class WrittenPieces:
    """Each memtable that was written is remembered as a few pieces; old ones are joined."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self._pieces = list(pieces)

    def note(self, entries: Sequence[Entry], watermark_ms: int) -> None:
        """Note entries written in due order; forget what has ended."""
        if entries:
            count = len(entries)
            bounds = [count * at // PIECES_A_MEMTABLE for at in range(PIECES_A_MEMTABLE + 1)]
            self._pieces += [
                Piece(entries[start][0], entries[end - 1][0], end - start)
                for start, end in pairwise(bounds)
                if start < end
            ]
        self._pieces = [piece for piece in self._pieces if piece.last_ms > watermark_ms]
        if len(self._pieces) > MOST_PIECES:
            self._join_neighbours()

    def histogram(self, edges_ms: Sequence[int] | Column, watermark_ms: int) -> DueHistogram:
        """What is left beyond the watermark."""
        histogram = DueHistogram(edges_ms)
        histogram.add_evenly(
            [p.beyond(watermark_ms) for p in self._pieces if p.last_ms > watermark_ms]
        )
        return histogram

    def _join_neighbours(self) -> None:
        self._pieces.sort()
        pairs = zip(self._pieces[::2], [*self._pieces[1::2], Piece(0, 0, 0)], strict=False)
        self._pieces = [
            Piece(a.first_ms, max(a.last_ms, b.last_ms), a.entries + b.entries) for a, b in pairs
        ]
