"""Rates, pauses and overdue rules, with manual time."""

from collections.abc import Sequence

import pytest

from proxy.config.settings import OverdueLimit, Resumed, TargetLimit
from proxy.dispatch.release_control import (
    REMEMBERED,
    UNTIL_RESUMED_MS,
    Disposition,
    OverdueRule,
    ReleaseControl,
)
from proxy.protocol.body import GONE, Delivery, Headers, IngressPartition, packer
from proxy.protocol.outcomes import Outcome, Rejection
from proxy.scheduling.batch import Batch, Hop, NotBefore
from storage.store import Entry

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


def decided(release: ReleaseControl, count: int, now_ms: int = NOW_MS) -> list[Disposition]:
    return [release.decide(a_delivery(due_ms=now_ms), now_ms) for _ in range(count)]


def places(ends: Sequence[Disposition]) -> list[int | None]:
    return [end.not_before_ms for end in ends if isinstance(end, Hop)]


def test_a_target_without_a_rate_is_never_held_back() -> None:
    release = ReleaseControl({"bills": 1})
    assert decided(release, 5) == [None] * 5


def test_what_exceeds_a_targets_rate_gets_places_in_line_one_after_the_other() -> None:
    release = ReleaseControl({"orders": 4})
    ends = decided(release, 4)
    assert ends[0] is None
    assert places(ends) == [NOW_MS + 250, NOW_MS + 500, NOW_MS + 750]


def test_who_has_reserved_goes_at_its_place_and_others_wait_behind_it() -> None:
    release = ReleaseControl({"orders": 4})
    decided(release, 2)
    later_ms = NOW_MS + 250
    reserved = a_delivery(wanted_ms=later_ms)
    assert places([release.decide(a_delivery(), later_ms - 1)]) == [NOW_MS + 500]
    assert release.decide(reserved, later_ms) is None


def test_the_first_pattern_that_fits_gives_the_rate() -> None:
    release = ReleaseControl({"orders-eu": 4, "orders-*": 1})
    ends = [release.decide(a_delivery(t), NOW_MS) for t in ["orders-eu", "orders-us"] * 2]
    assert ends[:2] == [None, None]
    assert places(ends) == [NOW_MS + 250, NOW_MS + 1000]


def test_each_target_of_a_pattern_has_the_rate_for_itself() -> None:
    release = ReleaseControl({"*": 1})
    assert release.decide(a_delivery("a"), NOW_MS) is None
    assert release.decide(a_delivery("b"), NOW_MS) is None


def test_rates_are_remembered_for_a_bounded_number_of_targets() -> None:
    release = ReleaseControl({"*": 1})
    for number in range(REMEMBERED + 10):
        release.decide(a_delivery(f"t{number}"), NOW_MS)
    assert len(release._queues) <= REMEMBERED


@pytest.mark.parametrize("late_ms", [0, 10 * MINUTE_MS])
def test_a_paused_targets_record_is_parked_until_the_pause_is_over(late_ms: int) -> None:
    release = ReleaseControl()
    release.pause(["orders*"])
    end = release.decide(a_delivery(due_ms=NOW_MS - late_ms), NOW_MS)
    assert isinstance(end, Hop)
    assert (end.what, end.not_before_ms) == ("requeued", UNTIL_RESUMED_MS)
    assert release.decide(a_delivery("bills"), NOW_MS) is None


def test_a_pause_that_is_lifted_counts_no_more() -> None:
    release = ReleaseControl()
    release.pause(["orders"])
    assert release.decide(a_delivery(), NOW_MS) is not None
    release.pause([])
    assert release.decide(a_delivery(), NOW_MS) is None


RULES = (
    OverdueRule("alerts-vital", 1, "deliver"),
    OverdueRule("alerts-*", 10 * MINUTE_MS, "drop"),
    OverdueRule("alerts-*", MINUTE_MS, "dead-letter"),
)


def test_an_overdue_record_ends_as_the_first_rule_that_fits_says() -> None:
    release = ReleaseControl(overdue=RULES)

    def of(target: str, late_ms: int) -> Disposition:
        late = a_delivery(target, NOW_MS - late_ms, headers=[("timer-id", b"x")])
        return release.decide(late, NOW_MS)

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
    assert isinstance(release.decide(late, NOW_MS), Outcome)


def test_a_record_whose_body_is_gone_is_not_sent_on_without_it() -> None:
    release = ReleaseControl({"*": 1}, [OverdueRule("*", 1, "drop")])
    release.pause(["*"])
    gone = a_delivery(due_ms=NOW_MS - MINUTE_MS, partition=GONE)
    assert release.decide(gone, NOW_MS) is None


def a_batch(target: str, due_ms: int) -> list[Batch[Entry]]:
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


def test_a_cap_set_at_run_time_comes_before_that_of_the_settings_until_it_is_cleared() -> None:
    release = ReleaseControl({"orders": 4})
    release.limit({"orders": TargetLimit(per_second=8)})
    assert places(decided(release, 3)) == [NOW_MS + 125]
    release.limit({})
    later_ms = NOW_MS + MINUTE_MS
    assert places(decided(release, 2, later_ms)) == [later_ms + 250]


def test_a_cap_set_at_run_time_counts_where_the_settings_have_none() -> None:
    release, batches = ReleaseControl(), list[Batch[Entry]]()
    assert not release.concerns(["orders"], batches, NOW_MS)
    release.limit({"ord*": TargetLimit(per_second=4)})
    assert release.concerns(["orders"], batches, NOW_MS)
    assert not release.concerns(["bills"], batches, NOW_MS)
    assert places(decided(release, 2)) == [NOW_MS + 250]


def test_caps_and_rules_are_looked_for_each_for_themselves_the_nearest_pattern_first() -> None:
    release = ReleaseControl()
    drop = OverdueLimit(older_than_ms=MINUTE_MS, action="drop")
    release.limit(
        {"*": TargetLimit(per_second=4, overdue=drop), "orders": TargetLimit(per_second=8)}
    )
    assert places(decided(release, 3)) == [NOW_MS + 125]
    late = a_delivery(due_ms=NOW_MS - MINUTE_MS - 1)
    end = release.decide(late, NOW_MS)
    assert isinstance(end, Outcome)
    assert "* allows 60000 (release.overdue)" in end.detail


def test_a_rule_set_at_run_time_comes_before_those_of_the_settings() -> None:
    release = ReleaseControl(overdue=[OverdueRule("orders", MINUTE_MS, "drop")])
    late = a_delivery(due_ms=NOW_MS - 2 * MINUTE_MS)
    release.limit({"o*": TargetLimit(overdue=OverdueLimit(older_than_ms=1, action="deliver"))})
    assert release.decide(late, NOW_MS) is None
    release.limit({"o*": TargetLimit(overdue=OverdueLimit(older_than_ms=1, action="dead-letter"))})
    assert isinstance(release.decide(late, NOW_MS), Rejection)


def a_held_delivery(resumed_ms: int, place_ms: int) -> Delivery:
    mark: Headers = [("timer-hop-resumed", b"%d" % resumed_ms)]
    return a_delivery(due_ms=NOW_MS - MINUTE_MS, wanted_ms=place_ms, headers=mark)


def test_the_limit_of_a_resume_counts_for_held_records_only_and_keeps_their_mark() -> None:
    release, resumed_ms = ReleaseControl(), NOW_MS - 1_000
    release.pause([], {"ord*": Resumed(resumed_ms, 4)})
    ends = [release.decide(a_held_delivery(resumed_ms, NOW_MS), NOW_MS) for _ in range(4)]
    late = [end for end in ends if isinstance(end, Hop)]
    assert ends[:2] == [None, None]
    assert [(end.not_before_ms, end.resumed_ms) for end in late] == [
        (NOW_MS + 250, resumed_ms),
        (NOW_MS + 500, resumed_ms),
    ]
    assert decided(release, 5) == [None] * 5


def test_a_cap_counts_besides_the_limit_of_a_resume() -> None:
    release, resumed_ms = ReleaseControl({"orders": 4}), NOW_MS - 1_000
    release.pause([], {"orders": Resumed(resumed_ms, 1_000)})
    held = [a_held_delivery(resumed_ms, NOW_MS) for _ in range(3)]
    ends = [release.decide(one, NOW_MS) for one in held]
    assert places(ends) == [NOW_MS + 250]
    assert places(decided(release, 1)) == [NOW_MS + 500]


def test_a_worker_has_the_same_share_of_a_resume_as_of_the_partitions() -> None:
    release, resumed_ms = ReleaseControl(), NOW_MS - 1_000
    release.pause([], {"orders": Resumed(resumed_ms, 8)})
    release.share = 0.25
    ends = [release.decide(a_held_delivery(resumed_ms, NOW_MS), NOW_MS) for _ in range(4)]
    assert places(ends) == [NOW_MS + 500, NOW_MS + 1_000]


def test_a_record_in_the_queue_of_a_resume_that_is_forgotten_goes_as_it_is_rolled() -> None:
    in_queue = a_held_delivery(NOW_MS - 1_000, NOW_MS + MINUTE_MS)
    assert ReleaseControl().not_before(in_queue, NOW_MS) == NotBefore(in_queue.due_ms)
