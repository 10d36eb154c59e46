"""Rows of the timer log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.options import MOST_NUMBERS, Options
from storage.wheel.log import POSITION_BITS, RECORD, SPANS_MS, locate, locations

SPANS = st.integers(0, len(SPANS_MS) - 1)
POSITIONS = st.integers(0, 2**POSITION_BITS - 1) | st.sampled_from(
    [2**32 - 1, 2**32, 2**33 + 1, 2**POSITION_BITS - 1]
)


@given(st.lists(st.tuples(SPANS, POSITIONS), max_size=8))
def test_where_a_body_lies_comes_back_and_touches_nothing_else(
    asked: list[tuple[int, int]],
) -> None:
    """Invariant: each span and each position up to 64 TiB is returned unchanged."""
    rows = np.zeros(len(asked), RECORD)
    rows["target"], rows["length"], rows["crc"] = MOST_NUMBERS, 2**32 - 1, 2**32 - 1
    columns = np.array(asked, np.int64).reshape(-1, 2).T
    locate(rows, *columns)
    assert list(zip(*(found.tolist() for found in locations(rows)), strict=True)) == asked
    assert {*rows["target"].tolist(), MOST_NUMBERS} == {MOST_NUMBERS}
    assert {*rows["length"].tolist(), *rows["crc"].tolist(), 2**32 - 1} == {2**32 - 1}


def test_more_targets_than_a_row_can_number_are_refused() -> None:
    assert Options(most_names=MOST_NUMBERS).most_names == MOST_NUMBERS
    with pytest.raises(ValueError, match="must be at most"):
        Options(most_names=MOST_NUMBERS + 1)
