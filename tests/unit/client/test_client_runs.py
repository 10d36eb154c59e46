"""Whole runs of consumers, in order and beside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client.group_runs import RECORDS, random_run


@given(seed=st.integers(0, 2**32))
def test_each_record_of_a_key_waits_until_those_before_it_are_over(seed: int) -> None:
    """No handler begins before each earlier record of its key and partition has succeeded or was
    given up. A count never exceeds the failures. In the end all records are over and committed,
    those given up as dead letters.
    """
    story = random_run(seed, is_orderly=True).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)


@given(seed=st.integers(0, 2**32))
def test_beside_each_other_no_record_is_lost_and_none_comes_again_behind_a_commit(
    seed: int,
) -> None:
    """In the end each record has been handled, or handed over to be retried."""
    story = random_run(seed, is_orderly=False).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)
