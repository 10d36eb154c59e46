"""Runs and faults of the audit campaign, without the audit."""

from __future__ import annotations

from random import Random

from tools.campaign.contents import Contents
from tools.campaign.operators.catalogue import OPERATORS
from tools.campaign.operators.operator import Planting
from tools.campaign.played_run import played

SEED = 3
RUNS = 200


def test_history_depends_on_seed_and_number_alone() -> None:
    first, again, other = played(SEED, 5, 10), played(SEED, 5, 10), played(SEED, 6, 10)
    assert first == again
    assert first != other


def test_history_is_the_same_in_other_partitions_and_targets() -> None:
    first, twin = played(SEED, 5, 10), played(SEED, 5, 11)
    assert [one.end for one in first.records()] == [one.end for one in twin.records()]


def test_there_are_forty_operators_and_more_and_each_says_what_it_does() -> None:
    assert len(OPERATORS) >= 40
    assert len({one.says for one in OPERATORS.values()}) == len(OPERATORS)


def test_each_operator_finds_a_place_and_changes_what_the_topics_hold() -> None:
    left = dict(OPERATORS)
    for number in range(RUNS):
        if not left:
            break
        contents = played(SEED, number, number)
        for name, operator in list(left.items()):
            changed = contents.copy()
            planting = Planting(changed, Random(number))
            if places := operator.places(planting):
                planted = operator.plant(planting, places[0])
                assert planted.expected, name
                assert _told(changed) != _told(contents), name
                del left[name]
    assert not left, f"nowhere to plant {list(left)}"


def _told(contents: Contents) -> tuple[object, ...]:
    return contents.ingress, contents.others, contents.moments
