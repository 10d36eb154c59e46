"""Merged counts by target are exact and lose no record."""

from __future__ import annotations

from storage.store import NO_COUNTS, TargetCounts, added


def test_counts_of_shards_that_know_all_their_targets_are_added() -> None:
    parts = [TargetCounts({"orders": 3}), TargetCounts({"orders": 1, "bills": 5}), NO_COUNTS]
    assert added(parts) == ({"orders": 4, "bills": 5}, 0)


def test_a_target_that_one_shard_counts_among_others_is_not_shown() -> None:
    parts = [TargetCounts({"orders": 3, "bills": 1}), TargetCounts({"orders": 0}, others=9)]
    assert added(parts) == ({"orders": 3}, 10)


def test_more_targets_than_are_kept_leave_the_largest() -> None:
    parts = [TargetCounts({"a": 1, "b": 5}), TargetCounts({"c": 3, "d": 0})]
    assert added(parts, most=2) == ({"b": 5, "c": 3}, 1)


def test_what_was_deleted_is_left_out() -> None:
    stored = TargetCounts({"orders": 3, "bills": 1})
    assert stored.without(TargetCounts({"orders": 2})) == ({"orders": 1, "bills": 1}, 0)


def test_a_target_whose_deleted_entries_are_not_counted_by_name_is_not_shown() -> None:
    stored = TargetCounts({"orders": 3, "bills": 4}, others=6)
    deleted = TargetCounts({"orders": 1, "elsewhere": 2}, others=3)
    assert stored.without(deleted) == ({"orders": 2}, 5)


def test_the_largest_are_shown_and_none_that_has_nothing() -> None:
    counts = TargetCounts({"a": 2, "b": 2, "c": 7, "d": 0}, others=1)
    assert counts.largest(2) == ({"c": 7, "a": 2}, 3)
    assert counts.largest(9) == ({"c": 7, "a": 2, "b": 2}, 1)
