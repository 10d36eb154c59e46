"""Replays respect their rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dead_letters.replay_plan import Rate, read_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/s", Rate(100, 1_000)), ("30/m", Rate(30, 60_000)), ("5/h", Rate(5, 3_600_000))],
)
def test_rate_is_read_with_its_unit(text: str, rate: Rate) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["100", "0/s", "fast", "-1/s", "1.5/s", "10/d", "10 /s"])
def test_rate_without_a_unit_or_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="letters per second, minute or hour"):
        read_rate(text)


@given(st.integers(1, 10**6), st.sampled_from([1_000, 60_000, 3_600_000]), st.integers(1, 5_000))
def test_no_more_letters_go_than_the_rate_allows(letters: int, per_ms: int, batches: int) -> None:
    """Invariant: after the wait the sent letters match the rate, to the millisecond."""
    rate = Rate(letters, per_ms)
    sent = min(batches, 500) * rate.at_once(500)
    waited_ms = rate.wait_ms(sent, 0)
    assert sent * per_ms <= letters * waited_ms
    assert sent * per_ms > letters * (waited_ms - 1)
    assert rate.wait_ms(sent, waited_ms) == 0


def test_batches_of_a_slow_replay_are_small_and_of_a_fast_one_bounded() -> None:
    assert Rate(1, 3_600_000).at_once(500) == 1
    assert Rate(100, 1_000).at_once(500) == 25
    assert Rate(10**6, 1_000).at_once(500) == 500
