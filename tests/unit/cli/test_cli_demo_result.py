"""What the demo has read is compared with its plan: too little, too much, early, elsewhere."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.cli.trial.demo.evidence import Arrival, Evidence, Sent
from proxy.cli.trial.demo.group_result import UNKNOWN, GroupResult, group_results
from proxy.cli.trial.demo.plan import DEMO_ID, Wanted
from proxy.config.settings import TopicSettings

DEAD_LETTERS = "timer.dead-letters"
CHECKS = "checks"
ORIGIN = "timer.ingress/0/7"
SENT = Sent(ORIGIN, 1_000)
WANTED = Wanted(
    ident="a",
    group="delay",
    topic="orders",
    headers=[
        ("timer-topic", b"orders"),
        ("timer-delay", b"500"),
        ("timer-id", b"o1"),
        ("timer-key", b"k"),
    ],
    key=b"k",
    value=b"v",
    delay_ms=500,
    own_headers=[(DEMO_ID, b"a")],
)
STAMPS = [("timer-origin", ORIGIN.encode()), ("timer-due", b"1500")]
GOOD = Arrival("orders", b"k", b"v", [(DEMO_ID, b"a"), *STAMPS], 1_502, 1_510)
BAD_TIME = replace(WANTED, reason="time-unreadable")
DEAD_LETTER = Arrival(
    DEAD_LETTERS,
    b"k",
    b"v",
    [*WANTED.all_headers, ("timer-error", b"time-unreadable"), STAMPS[0]],
    1_001,
    1_002,
)
CANCELLED = replace(WANTED, arrives=False, ends=("cancelled",))
ASKED_ABOUT = replace(WANTED, arrives=False, checks_ms=(200, 500))


def evidence(
    arrivals: Sequence[Arrival] = (),
    outcomes: Sequence[tuple[str, str]] = (),
    checks: Sequence[Arrival] = (),
) -> Evidence:
    return Evidence(TopicSettings(), CHECKS, list(arrivals), list(checks), list(outcomes))


def result_of(arrivals: Sequence[Arrival], wanted: Wanted = WANTED) -> GroupResult:
    return group_results([wanted], {"a": SENT}, evidence(arrivals))["delay"]


def ended_as(*outcomes: str, wanted: Wanted = CANCELLED) -> GroupResult:
    said = [(ORIGIN, outcome) for outcome in outcomes]
    return group_results([wanted], {"a": SENT}, evidence(outcomes=said))["delay"]


def check(number: int, appended_ms: int, value: bytes = b"v") -> Arrival:
    stamps = [
        ("timer-transaction", b"check"),
        ("timer-id", b"o1"),
        ("timer-check", str(number).encode()),
    ]
    return Arrival(CHECKS, b"k", value, [(DEMO_ID, b"a"), *stamps], appended_ms, appended_ms)


def checked(*checks: Arrival) -> GroupResult:
    return group_results([ASKED_ABOUT], {"a": SENT}, evidence(checks=checks))["delay"]


def test_a_record_that_arrived_once_unchanged_and_not_early_holds() -> None:
    result = result_of([GOOD])
    assert result == GroupResult(sent=1, to_arrive=1, arrived=1, lateness_ms=[10])
    assert result.held


def test_a_record_that_did_not_arrive_is_missing() -> None:
    assert result_of([]).missing == 1


def test_a_record_that_arrived_twice_is_found() -> None:
    assert result_of([GOOD, GOOD]).twice == 1


def test_a_record_a_millisecond_early_is_found() -> None:
    assert result_of([replace(GOOD, appended_ms=1_499)]).early == 1


@pytest.mark.parametrize(
    "changed",
    [
        replace(GOOD, topic="payments"),
        replace(GOOD, headers=[*GOOD.headers, ("timer-error", b"publish-failed")]),
    ],
)
def test_a_record_that_arrived_elsewhere_is_missing_here_and_too_many_there(
    changed: Arrival,
) -> None:
    result = result_of([changed])
    assert (result.missing, result.twice) == (1, 1)


def test_a_dead_letter_with_its_reason_holds() -> None:
    assert result_of([DEAD_LETTER], BAD_TIME).held


@pytest.mark.parametrize(
    "wrong",
    [
        GOOD,
        replace(DEAD_LETTER, headers=[*WANTED.all_headers, ("timer-error", b"other"), STAMPS[0]]),
        replace(DEAD_LETTER, topic="orders"),
    ],
)
def test_a_dead_letter_elsewhere_or_with_another_reason_is_found(wrong: Arrival) -> None:
    result = result_of([wrong], BAD_TIME)
    assert (result.missing, result.twice) == (1, 1)


def test_a_cancelled_record_holds_with_its_outcome_alone() -> None:
    assert ended_as("cancelled").held
    assert ended_as().missing == 1
    assert ended_as("cancelled", "cancelled").twice == 1


def test_another_outcome_than_wanted_is_one_too_few_and_one_too_many() -> None:
    result = ended_as("replaced")
    assert (result.missing, result.twice) == (1, 1)


def test_a_cancelled_record_that_arrives_all_the_same_has_ended_twice() -> None:
    seen = evidence([GOOD], [(ORIGIN, "cancelled")])
    assert group_results([CANCELLED], {"a": SENT}, seen)["delay"].twice == 1


def test_a_delivered_record_with_an_outcome_has_ended_twice() -> None:
    seen = evidence([GOOD], [(ORIGIN, "dead-lettered")])
    assert group_results([WANTED], {"a": SENT}, seen)["delay"].twice == 1


def test_outcomes_of_successors_are_the_record_s_own() -> None:
    seen = evidence(outcomes=[(ORIGIN, "requeued"), ("timer.ingress/0/9", "dead-lettered")])
    seen._roots["timer.ingress/0/9"] = ORIGIN
    wanted = replace(WANTED, arrives=False, ends=("dead-lettered", "requeued"))
    result = group_results([wanted], {"a": SENT}, seen)["delay"]
    assert result.held
    assert result.ended == Counter({"requeued": 1, "dead-lettered": 1})


def test_a_place_in_a_queue_that_passed_costs_one_more_outcome_and_only_in_a_queue() -> None:
    seen = evidence([GOOD], [(ORIGIN, "requeued")] * 3)
    queued = replace(WANTED, ends=("requeued", "requeued"))
    assert group_results([queued], {"a": SENT}, seen)["delay"].held
    assert group_results([WANTED], {"a": SENT}, seen)["delay"].twice == 3


def test_check_backs_hold_each_once_and_in_time() -> None:
    result = checked(check(1, 1_200), check(2, 1_500))
    assert (result.held, result.checks) == (True, 2)


def test_check_backs_that_are_missing_double_early_or_changed_are_found() -> None:
    assert checked(check(1, 1_200)).missing == 1
    assert checked(check(1, 1_200), check(1, 1_300), check(2, 1_500)).twice == 1
    assert checked(check(1, 1_200), check(2, 1_499)).early == 1
    assert checked(check(1, 1_200), check(2, 1_500, b"other")).altered == 1


def test_what_nobody_sent_is_found() -> None:
    stranger = replace(GOOD, headers=[])
    seen = evidence([GOOD, stranger], [("timer.ingress/1/1", "missed")], [])
    unknown = group_results([WANTED], {"a": SENT}, seen)[UNKNOWN]
    assert (unknown.altered, unknown.twice) == (1, 1)
