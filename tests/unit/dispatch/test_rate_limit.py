"""Records per second of a rate limit, with manual time."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.dispatch.release_control import BURST_MS, REFILL_MS, RateLimit, WorkerRateLimit

NOW_MS = 1_800_000_000_000


def test_without_a_bound_there_is_no_limit() -> None:
    assert WorkerRateLimit().limit is None


def test_a_bound_set_at_run_time_counts_in_place_of_the_settings_until_it_is_taken_back() -> None:
    for of_settings in (None, 100):
        rate = WorkerRateLimit(of_settings)
        rate.set(1000)
        assert rate.limit is not None
        assert rate.limit.records_available(NOW_MS) == 250
        rate.limit.take(250, NOW_MS)
        rate.set(1000)
        assert rate.limit.wait_ms(NOW_MS) == REFILL_MS, "said again it is no new one"
        rate.set(None)
        assert rate.set_at_run_time is None
    assert rate.limit is not None
    assert rate.limit.records_available(NOW_MS) == 25


def test_without_a_bound_in_the_settings_a_bound_of_run_time_ends_when_it_is_taken_back() -> None:
    rate = WorkerRateLimit()
    rate.set(1000)
    rate.set(None)
    assert rate.limit is None


def test_a_rate_begins_with_what_it_would_have_saved() -> None:
    assert RateLimit(1000).records_available(NOW_MS) == 1000 * BURST_MS // 1000


def test_a_rate_that_is_used_up_earns_a_share_before_it_opens_again() -> None:
    rate = RateLimit(1000)
    rate.take(rate.records_available(NOW_MS), NOW_MS)
    assert rate.wait_ms(NOW_MS) == REFILL_MS
    assert rate.wait_ms(NOW_MS + REFILL_MS - 1) == 1
    assert rate.wait_ms(NOW_MS + REFILL_MS) == 0
    assert rate.records_available(NOW_MS + REFILL_MS) == 1000 * REFILL_MS // 1000


def test_what_was_taken_beyond_what_is_available_is_waited_off() -> None:
    rate = RateLimit(100)
    rate.take(rate.records_available(NOW_MS) + 100, NOW_MS)
    assert rate.records_available(NOW_MS) == -100
    assert rate.wait_ms(NOW_MS) == 1000 + REFILL_MS
    assert rate.records_available(NOW_MS + 1000) == 0


def test_one_record_a_minute_would_be_below_the_lowest_rate_of_one_a_second() -> None:
    rate = RateLimit(1)
    rate.take(1, NOW_MS)
    assert rate.wait_ms(NOW_MS) == 1000
    assert rate.records_available(NOW_MS + 999) == 0
    assert rate.records_available(NOW_MS + 1000) == 1


@given(
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 3000)), min_size=1, max_size=60),
)
def test_a_rate_is_exceeded_over_no_stretch_of_time(
    per_second: int, steps: list[tuple[int, int]]
) -> None:
    """Invariant: between any two moments no more records pass than the rate and the burst allow."""
    rate, now_ms = RateLimit(per_second), NOW_MS
    gone: list[tuple[int, int]] = []
    for elapsed_ms, wanted in steps:
        now_ms += elapsed_ms
        taken = 0 if rate.wait_ms(now_ms) else min(wanted, rate.records_available(now_ms))
        rate.take(taken, now_ms)
        gone.append((now_ms, taken))
    for start, (from_ms, _) in enumerate(gone):
        total = 0
        for until_ms, taken in gone[start:]:
            total += taken
            assert total * 1000 <= per_second * (until_ms - from_ms) + rate.burst * 1000
