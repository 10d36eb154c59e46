"""The checksum in each row of a run."""

from __future__ import annotations

import random

import numpy as np

from storage.ids.layout import ROW, ROW_BYTES, are_whole, seal


def test_any_bit_that_flips_in_a_row_or_its_hash_is_seen() -> None:
    draw = random.Random(5)
    for data in (bytes(ROW_BYTES), b"\xff" * ROW_BYTES, draw.randbytes(ROW_BYTES)):
        rows = np.frombuffer(data, ROW).copy()
        hashes = np.frombuffer(draw.randbytes(8), "<u8").copy()
        seal(rows, hashes)
        assert are_whole(rows, hashes)
        for column in (rows.view(np.uint8), hashes.view(np.uint8)):
            for bit in range(8 * column.size):
                column[bit // 8] ^= 1 << bit % 8
                assert not are_whole(rows, hashes), bit
                column[bit // 8] ^= 1 << bit % 8


def test_two_rows_that_have_changed_places_are_seen() -> None:
    rows = np.frombuffer(random.Random(6).randbytes(2 * ROW_BYTES), ROW).copy()
    hashes = np.array([1, 2], np.uint64)
    seal(rows, hashes)
    assert are_whole(rows, hashes)
    assert not are_whole(rows[::-1].copy(), hashes)
