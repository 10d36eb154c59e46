"""About how many entries pend until when: for people to look at, and cheap to know."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.store import Column


class Piece(NamedTuple):
    """So many entries, due evenly from `first_ms` to `last_ms`."""

    first_ms: int
    last_ms: int
    entries: float

    def beyond(self, watermark_ms: int) -> "Piece":
        """What is left of it when all due by the watermark has ended."""
        if watermark_ms < self.first_ms:
            return self
        span_ms = self.last_ms - self.first_ms + 1
        left_ms = max(0, self.last_ms - watermark_ms)
        return Piece(watermark_ms + 1, self.last_ms, self.entries * left_ms / span_ms)


class DueHistogram:
    """Entries counted between `edges_ms` (ascending): up to the first, ..., beyond the last."""

    def __init__(self, edges_ms: Sequence[int] | Column) -> None:
        self.edges_ms = np.asarray(edges_ms, np.int64)
        self._counts: npt.NDArray[np.float64] = np.zeros(len(edges_ms) + 1)

    def add(self, dues_ms: Column, entries: Column | None = None) -> None:
        """Count dues, each once or as often as `entries` says. Fast where many are in order."""
        if entries is not None and bool((dues_ms[1:] >= dues_ms[:-1]).all()):
            upto = np.concatenate(([0], np.cumsum(entries)))
            ends = upto[np.searchsorted(dues_ms, self.edges_ms, "right")]
            self._counts += np.diff(ends, prepend=0, append=upto[-1])
            return
        places = np.searchsorted(self.edges_ms, dues_ms, "left")
        self._counts += np.bincount(places, entries, self._counts.size)

    def add_evenly(self, pieces: Sequence[Piece]) -> None:
        """Count entries of which no more is known."""
        if pieces:
            firsts_ms, lasts_ms, entries = np.array(pieces, np.float64).T[:, :, None]
            shares = (self.edges_ms - firsts_ms + 1) / (lasts_ms - firsts_ms + 1)
            upto = np.clip(shares, 0, 1) * entries
            self._counts += np.diff(upto.sum(axis=0), prepend=0, append=entries.sum())

    def join(self, other: "DueHistogram", entries: int) -> None:
        """Add what another one counts, taken as the shares of so many entries."""
        counted = other._counts.sum()  # noqa: SLF001 (of the same class)
        if counted > 0:
            self._counts += other._counts * (entries / counted)  # noqa: SLF001
        else:
            self._counts[0] += entries

    def whole(self) -> list[int]:
        """The counts in whole numbers, whose sum is right."""
        sums = np.rint(np.cumsum(self._counts)).astype(np.int64)
        counts: list[int] = np.diff(sums, prepend=0).tolist()
        return counts
