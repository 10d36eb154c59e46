"""Numbers of target names: bounded, with exact counts by name."""

from __future__ import annotations

from storage.counts import TargetCounter, TargetNumbers, offsets_of
from storage.memtable import columns_of
from storage.store import dues_of
from tests.unit.storage.shards import entry


def test_names_beyond_the_bound_are_counted_together() -> None:
    counter = TargetCounter(TargetNumbers(most=2))
    counter.add({"a": 1, "b": 2, "c": 3})
    counter.add({"c": 1, "a": 1})
    assert counter.shown() == ({"a": 2, "b": 2}, 4)


def test_no_name_gets_a_number_while_some_of_it_may_be_among_the_others() -> None:
    counter = TargetCounter(TargetNumbers(most=2))
    counter.add({"a": 1, "b": 1, "c": 1})
    counter.remove({"a": 1})
    counter.add({"c": 1, "d": 1})
    assert counter.shown() == ({"a": 0, "b": 1}, 3)
    counter.remove({"c": 2, "d": 1})
    assert counter.shown() == ({"b": 1}, 0)


def test_a_name_without_a_number_gets_one_once_nothing_of_such_names_is_left() -> None:
    numbers = TargetNumbers(most=2)
    counter = TargetCounter(numbers)
    counter.add({"a": 1, "b": 1, "c": 1})
    counter.remove({"a": 1, "c": 1})
    numbers.release(counter.by_name)
    counter.add({"c": 5})
    assert counter.shown() == ({"b": 1, "c": 5}, 0)


def test_a_release_is_wanted_only_after_as_many_new_names_as_there_are_numbers() -> None:
    numbers = TargetNumbers(most=3)
    wanted = []
    for name in ("a", "b", "a", "b", "c", "d"):
        numbers.has(name)
        wanted.append(numbers.wants_release)
    numbers.release({"a"})
    wanted.append(numbers.wants_release)
    assert wanted == [False, False, False, False, True, True, False]


def test_a_number_is_used_again_for_another_name() -> None:
    numbers = TargetNumbers({7: "old"}, most=2)
    numbers.has("a")
    first = numbers.by_name["a"]
    numbers.release({"old"})
    numbers.has("b")
    assert (numbers.by_number, numbers.by_name["b"]) == ({7: "old", first: "b"}, first)


def test_columns_give_back_what_they_were_made_of_with_and_without_numbers() -> None:
    numbers = TargetNumbers(most=1)
    made = [entry(1, 0, "orders"), entry(2, 1, "ünïcode"), entry(3, 2, ""), entry(4, 3, "orders")]
    for one in made:
        numbers.has(one[2])
    columns = columns_of(made, numbers, dues_of(made), offsets_of(made))
    assert columns.entries(numbers.by_number) == made
    assert columns.bodies[1] == b"\x09\x00" + "ünïcode".encode() + made[1][3]
