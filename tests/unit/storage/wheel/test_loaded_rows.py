"""Index rows of loaded slots: merging, peeking and forgetting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.store import PEEK_BYTES, Entry, Key
from storage.wheel import loader as loaded_rows
from storage.wheel.loader import LoadedRows
from storage.wheel.log import RECORD, Rows, in_order

KEYS = st.tuples(st.integers(0, 40), st.integers(0, 1000))


def rows_of(keys: list[Key]) -> Rows:
    rows = np.zeros(len(keys), RECORD)
    rows["fires_ms"] = [due_ms for due_ms, _ in keys]
    rows["offset"] = [offset for _, offset in keys]
    return in_order(rows)


def decoded(rows: Rows) -> list[Entry]:
    return [(due_ms, offset, "t", b"") for due_ms, offset in rows[["fires_ms", "offset"]].tolist()]


def keys_of(entries: list[Entry]) -> list[Key]:
    return [entry[:2] for entry in entries]


@pytest.mark.parametrize("merge_rows", [0, 8, 10**6])
def test_a_peek_shows_what_a_sorted_list_would(
    merge_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_rows, "MERGE_ROWS", merge_rows)
    monkeypatch.setattr(loaded_rows, "LEAST_ROWS", 1)
    hold_against_a_sorted_list()


@settings(max_examples=200, deadline=None)
@given(
    batches=st.lists(st.lists(KEYS, min_size=1, max_size=25), min_size=1, max_size=6),
    run_rows=st.integers(1, 9),
    looks=st.lists(st.tuples(st.integers(0, 45), st.integers(1, 12), st.booleans()), max_size=20),
)
def hold_against_a_sorted_list(
    batches: list[list[Key]], run_rows: int, looks: list[tuple[int, int, bool]]
) -> None:
    """Invariant: a peek returns the first keys of the sorted list of all added keys."""
    index = LoadedRows(decoded)
    model: list[Key] = []
    ended = (-1, -1)
    for until_ms, limit, forget in looks:
        for keys in [batches.pop() for _ in range(2) if batches]:
            fresh = sorted({key for key in keys if key > ended and key not in model})
            runs = [fresh[at : at + run_rows] for at in range(0, len(fresh), run_rows)]
            if runs:
                index.add([rows_of(run) for run in runs])
            model = sorted(model + fresh)
        expected = [key for key in model if key[0] <= until_ms][:limit]
        assert keys_of(index.peek(until_ms, limit, PEEK_BYTES).entries) == expected
        assert len(index) == len(model)
        assert index.next_fires_ms() == (model[0][0] if model else None)
        if forget and expected:
            ended = expected[-1]
            taken, skipped = index.forget(*ended)
            assert len(taken) + sum(map(len, skipped)) == len(expected)
            model = model[len(expected) :]


def test_large_bodies_are_peeked_a_bounded_number_of_bytes_at_a_time() -> None:
    rows = rows_of([(1, offset) for offset in range(7)])
    rows["length"] = [40, 40, 40, 500, 10, 10, 10]
    index = LoadedRows(decoded)
    index.add([rows])
    seen: list[list[int]] = []
    is_all = False
    while not is_all:
        entries, is_all = index.peek(9, 100, 100)
        assert index.peek(9, 100, 100) == (entries, is_all)
        seen.append([entry[1] for entry in entries])
        index.forget(*entries[-1][:2])
    assert seen == [[0, 1], [2], [3], [4, 5, 6]]
