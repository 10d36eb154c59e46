"""Rates, pauses and rules for the overdue, by hand-made time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.publishing.release_control import (
    REFILL_MS,
    REMEMBERED,
    SAVED_MS,
    OverdueRule,
    RateCap,
    ReleaseControl,
    TargetCap,
    Unlimited,
    Verdict,
)
from proxy.records.body import GONE, Headers, packer
from proxy.records.delivery import Delivery
from proxy.records.ingress_partition import IngressPartition
from proxy.records.outcome import Outcome
from proxy.records.rejection import Rejection
from proxy.scheduling.batch import Batch, Hop

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def a_delivery(
    target: str = "orders",
    due_ms: int = NOW_MS,
    wanted_ms: int | None = None,
    partition: int = -1,
    headers: Headers | None = None,
) -> Delivery:
    wanted_ms = due_ms if wanted_ms is None else wanted_ms
    return Delivery(
        due_ms, 7, target, partition, b"k", b"v", headers or [], 7, wanted_ms, wanted_ms
    )


def judged(release: ReleaseControl, count: int, now_ms: int = NOW_MS) -> list[Verdict]:
    return [release.judge(a_delivery(due_ms=now_ms), now_ms) for _ in range(count)]


def places(verdicts: Sequence[Verdict]) -> list[int | None]:
    return [verdict.not_before_ms for verdict in verdicts if isinstance(verdict, Hop)]


def test_without_a_cap_there_is_always_room() -> None:
    cap = Unlimited()
    cap.take(10**9, NOW_MS)
    assert cap.room(NOW_MS) > 10**9
    assert cap.wait_ms(NOW_MS) == 0


def test_a_cap_begins_with_what_it_would_have_saved() -> None:
    assert RateCap(1000).room(NOW_MS) == 1000 * SAVED_MS // 1000


def test_a_cap_that_is_used_up_earns_a_share_before_it_opens_again() -> None:
    cap = RateCap(1000)
    cap.take(cap.room(NOW_MS), NOW_MS)
    assert cap.wait_ms(NOW_MS) == REFILL_MS
    assert cap.wait_ms(NOW_MS + REFILL_MS - 1) == 1
    assert cap.wait_ms(NOW_MS + REFILL_MS) == 0
    assert cap.room(NOW_MS + REFILL_MS) == 1000 * REFILL_MS // 1000


def test_what_was_taken_beyond_the_room_is_waited_off() -> None:
    cap = RateCap(100)
    cap.take(cap.room(NOW_MS) + 100, NOW_MS)
    assert cap.room(NOW_MS) == -100
    assert cap.wait_ms(NOW_MS) == 1000 + REFILL_MS
    assert cap.room(NOW_MS + 1000) == 0


def test_one_record_a_minute_would_be_below_the_lowest_rate_of_one_a_second() -> None:
    cap = RateCap(1)
    cap.take(1, NOW_MS)
    assert cap.wait_ms(NOW_MS) == 1000
    assert cap.room(NOW_MS + 999) == 0
    assert cap.room(NOW_MS + 1000) == 1


@given(
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 3000)), min_size=1, max_size=60),
)
def test_a_cap_is_exceeded_over_no_stretch_of_time(
    per_second: int, steps: list[tuple[int, int]]
) -> None:
    """Between any two moments no more goes than the rate's share of the time between, and what may
    be saved."""
    cap, now_ms = RateCap(per_second), NOW_MS
    gone: list[tuple[int, int]] = []
    for elapsed_ms, wanted in steps:
        now_ms += elapsed_ms
        taken = 0 if cap.wait_ms(now_ms) else min(wanted, cap.room(now_ms))
        cap.take(taken, now_ms)
        gone.append((now_ms, taken))
    for start, (from_ms, _) in enumerate(gone):
        total = 0
        for until_ms, taken in gone[start:]:
            total += taken
            assert total * 1000 <= per_second * (until_ms - from_ms) + cap.most * 1000


def test_a_target_without_a_rate_is_never_held_back() -> None:
    release = ReleaseControl({"bills": 1})
    assert judged(release, 5) == [None] * 5


def test_what_exceeds_a_targets_rate_gets_places_in_line_one_after_the_other() -> None:
    release = ReleaseControl({"orders": 4})
    verdicts = judged(release, 4)
    assert verdicts[0] is None
    assert places(verdicts) == [NOW_MS + 250, NOW_MS + 500, NOW_MS + 750]


def test_who_has_booked_goes_at_its_place_and_others_wait_behind_it() -> None:
    release = ReleaseControl({"orders": 4})
    judged(release, 2)
    later_ms = NOW_MS + 250
    booked = a_delivery(wanted_ms=later_ms)
    assert places([release.judge(a_delivery(), later_ms - 1)]) == [NOW_MS + 500]
    assert release.judge(booked, later_ms) is None


def test_the_first_pattern_that_fits_gives_the_rate() -> None:
    release = ReleaseControl({"orders-eu": 4, "orders-*": 1})
    verdicts = [release.judge(a_delivery(t), NOW_MS) for t in ["orders-eu", "orders-us"] * 2]
    assert verdicts[:2] == [None, None]
    assert places(verdicts) == [NOW_MS + 250, NOW_MS + 1000]


def test_each_target_of_a_pattern_has_the_rate_for_itself() -> None:
    release = ReleaseControl({"*": 1})
    assert release.judge(a_delivery("a"), NOW_MS) is None
    assert release.judge(a_delivery("b"), NOW_MS) is None


def test_rates_are_remembered_for_a_bounded_number_of_targets() -> None:
    release = ReleaseControl({"*": 1})
    for number in range(REMEMBERED + 10):
        release.judge(a_delivery(f"t{number}"), NOW_MS)
    assert len(release._caps) <= REMEMBERED


@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 25)), min_size=1, max_size=40),
    st.integers(0, 300),
)
def test_a_targets_rate_is_exceeded_over_no_stretch_of_time_and_everybody_goes(
    per_second: int, arrivals: list[tuple[int, int]], late_ms: int
) -> None:
    """Whoever comes when, and however late those with a place: the rate holds, all go, and while
    nobody is late each is sent to the line once at most."""
    cap, now_ms = TargetCap(per_second), NOW_MS
    waiting: list[tuple[int, int]] = []
    gone: list[int] = []
    sent_back: list[int] = []
    fresh = 0

    def ask(times: int) -> None:
        place_ms = cap.place(now_ms, has_booked=times > 0)
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
    most = 2 * max(1, per_second * SAVED_MS // 1000)
    for start, from_ms in enumerate(gone):
        for taken, until_ms in enumerate(gone[start:], 1):
            assert taken * 1000 <= per_second * (until_ms - from_ms) + most * 1000
    if late_ms == 0:
        assert max(sent_back, default=0) <= 1


@pytest.mark.parametrize(
    ("late_ms", "again_in_ms"),
    [(0, 5_000), (9_000, 5_000), (30_000, 15_000), (10 * MINUTE_MS, 60_000)],
)
def test_a_paused_targets_record_is_looked_at_again_after_half_its_lateness(
    late_ms: int, again_in_ms: int
) -> None:
    release = ReleaseControl()
    release.pause(["orders*"])
    verdict = release.judge(a_delivery(due_ms=NOW_MS - late_ms), NOW_MS)
    assert isinstance(verdict, Hop)
    assert (verdict.what, verdict.not_before_ms) == ("requeued", NOW_MS + again_in_ms)
    assert release.judge(a_delivery("bills"), NOW_MS) is None


def test_a_pause_that_is_lifted_counts_no_more() -> None:
    release = ReleaseControl()
    release.pause(["orders"])
    assert release.judge(a_delivery(), NOW_MS) is not None
    release.pause([])
    assert release.judge(a_delivery(), NOW_MS) is None


RULES = (
    OverdueRule("alerts-vital", 1, "deliver"),
    OverdueRule("alerts-*", 10 * MINUTE_MS, "drop"),
    OverdueRule("alerts-*", MINUTE_MS, "dead-letter"),
)


def test_an_overdue_record_ends_as_the_first_rule_that_fits_says() -> None:
    release = ReleaseControl(overdue=RULES)

    def of(target: str, late_ms: int) -> Verdict:
        late = a_delivery(target, NOW_MS - late_ms, headers=[("timer-id", b"x")])
        return release.judge(late, NOW_MS)

    assert of("alerts-a", MINUTE_MS) is None
    rejected = of("alerts-a", MINUTE_MS + 1)
    assert isinstance(rejected, Rejection)
    assert rejected.code == "overdue"
    dropped = of("alerts-a", 10 * MINUTE_MS + 1)
    assert isinstance(dropped, Outcome)
    assert dropped[:4] == (7, "expired", NOW_MS - 10 * MINUTE_MS - 1, b"x")
    assert of("alerts-vital", 60 * MINUTE_MS) is None
    assert of("orders", 60 * MINUTE_MS) is None


def test_lateness_counts_from_what_the_record_asked_for_not_from_its_place_in_line() -> None:
    release = ReleaseControl(overdue=[OverdueRule("*", MINUTE_MS, "drop")])
    late = a_delivery(due_ms=NOW_MS - 2 * MINUTE_MS, wanted_ms=NOW_MS)
    assert isinstance(release.judge(late, NOW_MS), Outcome)


def test_a_record_whose_body_is_gone_is_not_sent_on_without_it() -> None:
    release = ReleaseControl({"*": 1}, [OverdueRule("*", 1, "drop")])
    release.pause(["*"])
    gone = a_delivery(due_ms=NOW_MS - MINUTE_MS, partition=GONE)
    assert release.judge(gone, NOW_MS) is None


def a_batch(target: str, due_ms: int) -> list[Batch]:
    return [
        Batch(
            IngressPartition("timer.ingress", 0),
            [(due_ms, 1, target, packer()((-1, None, None, [])))],
        )
    ]


def test_only_topics_that_something_is_said_of_are_looked_into() -> None:
    release = ReleaseControl({"bills": 1}, [OverdueRule("alerts", MINUTE_MS, "drop")])

    def concerns(target: str, late_ms: int = 0) -> bool:
        return release.concerns({target}, a_batch(target, NOW_MS - late_ms), NOW_MS)

    assert not ReleaseControl().concerns({"orders"}, a_batch("orders", 0), NOW_MS)
    assert concerns("bills")
    assert not concerns("orders", 60 * MINUTE_MS)
    assert not concerns("alerts", MINUTE_MS)
    assert concerns("alerts", MINUTE_MS + 1)
    assert not concerns("orders")
    release.pause(["ord*"])
    assert concerns("orders")
