"""What the soak draws: the same for the same seed, and everything sooner or later."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.soak.faults import LONGEST_PAUSE_S, OF_BROKERS, OF_PROXIES, Kind, drawn

KINDS = {"proxies": OF_PROXIES, "brokers": OF_BROKERS}


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
