"""Whole runs of consumers, in key order and concurrent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client.group_runs import RECORDS, random_run


@given(seed=st.integers(0, 2**32))
def test_each_record_of_a_key_waits_until_those_before_it_are_over(seed: int) -> None:
    """Invariant: no handler starts before each earlier record of its key and partition has
    succeeded or was given up. A count never exceeds the failures. At the end all records are
    committed, and those given up are dead letters."""
    story = random_run(seed, is_orderly=True).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)


@given(seed=st.integers(0, 2**32))
def test_beside_each_other_no_record_is_lost_and_none_comes_again_behind_a_commit(
    seed: int,
) -> None:
    """Invariant: at the end each record was handled or handed over for a retry."""
    story = random_run(seed, is_orderly=False).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)
