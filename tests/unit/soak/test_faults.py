"""Faults of the soak test: the same for the same seed, and each kind in the end."""

from __future__ import annotations

from itertools import islice

import pytest

from tools.soak.faults import KINDS, LONGEST_PAUSE_S, Choice, Kind, Named, drawn, named, shrunk


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_same_seed_draws_the_same_faults_and_another_one_others(kinds: dict[str, Kind]) -> None:
    one, again, other = (list(islice(drawn(kinds, seed), 50)) for seed in ("1", "1", "2"))
    assert one == again
    assert one != other


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_every_fault_is_drawn_within_its_bounds(kinds: dict[str, Kind]) -> None:
    faults = list(islice(drawn(kinds, "3"), 1_000))
    assert {fault.what for fault in faults} == set(kinds)
    for fault in faults:
        kind = kinds[fault.what]
        assert kind.least_s <= fault.lasts_s <= kind.most_s
        assert 0 <= fault.pause_s <= LONGEST_PAUSE_S
        assert fault.one_of([1, 2, 3]) in {1, 2, 3}


def test_faults_that_are_named_are_done_alone_and_as_they_were() -> None:
    whole = list(islice(Choice().of(18, "proxies"), 30))
    few = Choice(frozenset(named("proxies", "3-5,20") | named("brokers", "7")))
    assert list(few.of(18, "proxies")) == [whole[3], whole[4], whole[5], whole[20]]
    assert [fault.number for fault in few.of(18, "brokers")] == [7]
    assert not list(Choice(frozenset(named("brokers", "7"))).of(18, "proxies"))


def test_kinds_can_be_left_out() -> None:
    kinds = {
        fault.what for fault in islice(Choice(None, frozenset({"kill"})).of(1, "proxies"), 500)
    }
    assert kinds == set(KINDS["proxies"]) - {"kill"}


def test_a_lane_of_which_every_kind_is_left_out_ends_at_once() -> None:
    assert not list(Choice(None, frozenset(KINDS["brokers"])).of(1, "brokers"))


def test_a_failing_run_is_halved_while_a_half_fails() -> None:
    faults: list[Named] = [("proxies", number) for number in range(40)]
    assert shrunk(faults, lambda some: ("proxies", 29) in some) == [("proxies", 29)]
    both = shrunk(faults, lambda some: {("proxies", 21), ("proxies", 29)} <= set(some))
    assert both == [("proxies", number) for number in range(20, 30)]
