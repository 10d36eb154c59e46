"""Pending entries by chunk of offsets."""

from __future__ import annotations

import numpy as np
import pytest

from storage.counts import MAX_CHUNKS, ChunkCounts


def counted(offsets: list[int]) -> ChunkCounts:
    counts = ChunkCounts()
    counts.add(np.array(offsets, np.int64))
    return counts


@pytest.mark.parametrize("apart", [1, 3, 17, 1000])
def test_what_others_count_is_taken_out_whatever_the_size_of_their_chunks(apart: int) -> None:
    everything = [5 + apart * at for at in range(MAX_CHUNKS)]
    for ended in (everything[:3], everything[100:5000], everything[-1:], everything):
        counts = counted(everything)
        counts.take_out(counted(ended))
        left = counted(everything)
        left.remove(np.array(ended, np.int64))
        assert counts.total == left.total == len(everything) - len(ended)
        assert counts.floor() == left.floor()
        assert counts.counts_same(left)


def test_nothing_is_taken_out_by_counts_of_nothing() -> None:
    counts = counted([7])
    counts.take_out(ChunkCounts())
    assert (counts.total, counts.floor()) == (1, 7)
