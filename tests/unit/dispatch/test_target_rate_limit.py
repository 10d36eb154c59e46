"""Immediate and reserved records of a target's rate, with manual time."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.dispatch.release_control import BURST_MS, TargetRateLimit

NOW_MS = 1_800_000_000_000


@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 25)), min_size=1, max_size=40),
    st.integers(0, 300),
)
def test_a_targets_rate_is_exceeded_over_no_stretch_of_time_and_everybody_goes(
    per_second: int, arrivals: list[tuple[int, int]], late_ms: int
) -> None:
    """Invariant: the rate holds and all records pass, for any arrivals and delays. On time, each
    record reserves once at most."""
    rate, now_ms = TargetRateLimit(per_second), NOW_MS
    waiting: list[tuple[int, int]] = []
    gone: list[int] = []
    sent_back: list[int] = []
    fresh = 0

    def ask(times: int) -> None:
        place_ms = rate.reserve(now_ms, has_reserved=times > 0)
        if place_ms is None:
            gone.append(now_ms)
            sent_back.append(times)
        else:
            assert place_ms > now_ms
            waiting.append((place_ms + late_ms, times + 1))

    for elapsed_ms, count in arrivals:
        fresh += count
        until_ms = now_ms + elapsed_ms
        while waiting and min(waiting)[0] <= until_ms:
            first = min(waiting)
            waiting.remove(first)
            now_ms = max(now_ms, first[0])
            ask(first[1])
        now_ms = until_ms
        for _ in range(count):
            ask(0)
    while waiting:
        first = min(waiting)
        waiting.remove(first)
        now_ms = max(now_ms, first[0])
        ask(first[1])
    assert len(gone) == fresh
    most = 2 * max(1, per_second * BURST_MS // 1000)
    for start, from_ms in enumerate(gone):
        for taken, until_ms in enumerate(gone[start:], 1):
            assert taken * 1000 <= per_second * (until_ms - from_ms) + most * 1000
    if late_ms == 0:
        assert max(sent_back, default=0) <= 1
