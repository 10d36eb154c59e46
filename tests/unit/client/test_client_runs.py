"""Whole runs of consumers, in order and beside each other, in transactions and without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client.group_runs import RECORDS, Kind, random_run

in_both_ways = pytest.mark.parametrize("is_exact", [False, True], ids=["at-least", "exactly"])


@in_both_ways
@given(seed=st.integers(0, 2**32))
def test_each_record_of_a_key_waits_until_those_before_it_are_over_and_no_failure_is_forgotten(
    seed: int, is_exact: bool
) -> None:
    """No handler begins with a record before each earlier one of its key and partition has
    succeeded or was given up, nor again before its failures are committed and it is due, nor when a
    commit says that it is done; its count never falls and never exceeds its failures; in the end
    all are over and committed, those given up as dead letters, in transactions one of each.
    """
    story = random_run(seed, Kind(is_orderly=True, is_exact=is_exact)).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)
    assert not is_exact or set(story.handed_over.values()) <= {1}


@in_both_ways
@given(seed=st.integers(0, 2**32))
def test_beside_each_other_no_record_is_lost_and_none_comes_again_that_a_commit_says_is_done(
    seed: int, is_exact: bool
) -> None:
    """In the end each record has been handled, or handed over to be retried, in transactions once
    at most; whoever got its partition when, no handler has begun with it after a commit that says
    that it is done.
    """
    story = random_run(seed, Kind(is_orderly=False, is_exact=is_exact)).story
    assert len(story.over) == 2 * RECORDS
    assert story.given_up <= set(story.handed_over)
    assert not is_exact or set(story.handed_over.values()) <= {1}
