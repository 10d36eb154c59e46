"""The filter of a run of ids passes every added id and few others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.ids.layout import FILTER_BITS, BloomFilter, Words, bits_of, filter_power

ANY_HASH = st.integers(0, 2**64 - 1)


def passing(made: BloomFilter, hashes: Words) -> list[int]:
    found: list[int] = made.passing(hashes, bits_of(hashes)).tolist()
    return found


@settings(deadline=None)
@given(st.lists(st.lists(ANY_HASH, max_size=50), max_size=4), st.integers(7, 12))
def test_every_hash_that_was_added_passes(batches: list[list[int]], power: int) -> None:
    """Invariant: a filter passes every hash that was added."""
    made = BloomFilter.empty(power)
    for batch in batches:
        made.add(np.array(batch, np.uint64))
    met = np.array([one for batch in batches for one in batch], np.uint64)
    assert passing(made, met) == list(range(met.size))


def test_empty_filter_lets_nothing_pass() -> None:
    assert passing(BloomFilter.empty(filter_power(0, FILTER_BITS)), np.arange(99, dtype="u8")) == []


@pytest.mark.parametrize("ids", [1_000, 32_768, 131_073])
def test_of_a_thousand_unknown_hashes_about_one_passes_a_full_filter(ids: int) -> None:
    drawn = np.random.default_rng(7).integers(0, 2**64, (2, ids), dtype=np.uint64)
    made = BloomFilter.empty(filter_power(ids, FILTER_BITS))
    made.add(drawn[0])
    assert len(passing(made, drawn[1])) <= ids * 1.5 / 1000
