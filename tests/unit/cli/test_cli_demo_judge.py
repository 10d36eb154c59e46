"""The demo's judge sees every way in which a record can end otherwise than it must."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.cli.trial.demo_evidence import Arrival, Evidence, Sent
from proxy.cli.trial.demo_judge import UNKNOWN, Verdict, judge
from proxy.cli.trial.demo_plan import DEMO_ID, Wanted
from proxy.config.settings import TopicSettings

DEAD_LETTERS = "timer.dead-letters"
CHECKS = "checks"
ORIGIN = "timer.ingress/0/7"
SENT = Sent(ORIGIN, 1_000)
WANTED = Wanted(
    ident="a",
    group="delay",
    topic="orders",
    headers=[("timer-topic", b"orders"), ("timer-delay", b"500"), ("timer-id", b"o1")],
    key=b"k",
    value=b"v",
    target_key=b"k",
    delay_ms=500,
    own_headers=[(DEMO_ID, b"a")],
)
STAMPS = [("timer-origin", ORIGIN.encode()), ("timer-due", b"1500")]
GOOD = Arrival("orders", 0, b"k", b"v", [(DEMO_ID, b"a"), *STAMPS], 1_502, 1_510)
BAD_TIME = replace(WANTED, reason="time-unreadable")
BURIED = Arrival(
    DEAD_LETTERS,
    0,
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


def verdict_on(arrivals: Sequence[Arrival], wanted: Wanted = WANTED) -> Verdict:
    return judge([wanted], {"a": SENT}, evidence(arrivals))["delay"]


def ended(*outcomes: str, wanted: Wanted = CANCELLED) -> Verdict:
    said = [(ORIGIN, outcome) for outcome in outcomes]
    return judge([wanted], {"a": SENT}, evidence(outcomes=said))["delay"]


def check(number: int, appended_ms: int, value: bytes = b"v") -> Arrival:
    stamps = [
        ("timer-transaction", b"check"),
        ("timer-id", b"o1"),
        ("timer-check", str(number).encode()),
    ]
    return Arrival(CHECKS, 0, b"k", value, [(DEMO_ID, b"a"), *stamps], appended_ms, appended_ms)


def checked(*checks: Arrival) -> Verdict:
    return judge([ASKED_ABOUT], {"a": SENT}, evidence(checks=checks))["delay"]


def test_a_record_that_arrived_once_unchanged_and_not_early_holds() -> None:
    verdict = verdict_on([GOOD])
    assert verdict == Verdict(sent=1, to_arrive=1, arrived=1, lateness_ms=[10])
    assert verdict.held


def test_a_record_that_did_not_arrive_is_missing() -> None:
    assert verdict_on([]).missing == 1


def test_a_record_that_arrived_twice_is_found() -> None:
    assert verdict_on([GOOD, GOOD]).twice == 1


def test_a_record_a_millisecond_early_is_found() -> None:
    assert verdict_on([replace(GOOD, appended_ms=1_499)]).early == 1


@pytest.mark.parametrize(
    "changed",
    [
        replace(GOOD, topic="payments"),
        replace(GOOD, key=b"other"),
        replace(GOOD, value=None),
        replace(GOOD, headers=[(DEMO_ID, b"a"), ("timer-delay", b"500"), STAMPS[1]]),
        replace(GOOD, headers=[(DEMO_ID, b"a"), STAMPS[0], ("timer-due", b"1499")]),
        replace(GOOD, headers=[(DEMO_ID, b"a"), ("extra", b""), *STAMPS]),
        replace(GOOD, headers=[*GOOD.headers, ("timer-first-origin", b"timer.ingress/0/3")]),
    ],
)
def test_a_record_that_is_not_what_was_sent_is_found(changed: Arrival) -> None:
    assert verdict_on([changed]).altered == 1


def test_a_record_in_another_partition_than_asked_is_found() -> None:
    assert verdict_on([GOOD], replace(WANTED, partition=2)).altered == 1
    assert verdict_on([GOOD], replace(WANTED, partition=0)).held


def test_a_dead_letter_with_its_reason_holds() -> None:
    assert verdict_on([BURIED], BAD_TIME).held


@pytest.mark.parametrize(
    "wrong",
    [
        GOOD,
        replace(BURIED, value=None),
        replace(BURIED, headers=[*WANTED.all_headers, ("timer-error", b"other"), STAMPS[0]]),
        replace(BURIED, headers=[(DEMO_ID, b"a"), ("timer-error", b"time-unreadable"), STAMPS[0]]),
    ],
)
def test_a_dead_letter_that_is_not_the_record_and_its_reason_is_found(wrong: Arrival) -> None:
    assert verdict_on([wrong], BAD_TIME).altered == 1


def test_a_cancelled_record_holds_with_its_outcome_alone() -> None:
    assert ended("cancelled").held
    assert ended().missing == 1
    assert ended("cancelled", "cancelled").twice == 1


def test_another_outcome_than_wanted_is_one_too_few_and_one_too_many() -> None:
    verdict = ended("replaced")
    assert (verdict.missing, verdict.twice) == (1, 1)


def test_a_cancelled_record_that_arrives_all_the_same_has_ended_twice() -> None:
    seen = evidence([GOOD], [(ORIGIN, "cancelled")])
    assert judge([CANCELLED], {"a": SENT}, seen)["delay"].twice == 1


def test_a_delivered_record_with_an_outcome_has_ended_twice() -> None:
    seen = evidence([GOOD], [(ORIGIN, "dead-lettered")])
    assert judge([WANTED], {"a": SENT}, seen)["delay"].twice == 1


MOVED = replace(WANTED, moves=True, ends=("rolled",))
LANDED = replace(
    GOOD,
    headers=[
        (DEMO_ID, b"a"),
        ("timer-origin", b"timer.ingress/0/9"),
        STAMPS[1],
        ("timer-first-origin", ORIGIN.encode()),
    ],
)


def moved(arrival: Arrival, origin: str = "timer.ingress/0/9") -> Verdict:
    seen = evidence([arrival], [(ORIGIN, "rolled")])
    seen.successors[ORIGIN].append(origin)
    return judge([MOVED], {"a": SENT}, seen)["delay"]


def test_a_rewritten_record_arrives_under_the_origin_of_its_successor() -> None:
    assert moved(LANDED).held
    assert moved(GOOD).altered == 1
    assert moved(LANDED, "timer.ingress/0/10").altered == 1


def test_outcomes_of_successors_are_the_record_s_own() -> None:
    seen = evidence(outcomes=[(ORIGIN, "requeued"), ("timer.ingress/0/9", "dead-lettered")])
    seen._roots["timer.ingress/0/9"] = ORIGIN
    wanted = replace(WANTED, arrives=False, ends=("dead-lettered", "requeued"))
    verdict = judge([wanted], {"a": SENT}, seen)["delay"]
    assert verdict.held
    assert verdict.ended == Counter({"requeued": 1, "dead-lettered": 1})


def test_check_backs_hold_each_once_and_in_time() -> None:
    verdict = checked(check(1, 1_200), check(2, 1_500))
    assert (verdict.held, verdict.checks) == (True, 2)


def test_check_backs_that_are_missing_double_early_or_changed_are_found() -> None:
    assert checked(check(1, 1_200)).missing == 1
    assert checked(check(1, 1_200), check(1, 1_300), check(2, 1_500)).twice == 1
    assert checked(check(1, 1_200), check(2, 1_499)).early == 1
    assert checked(check(1, 1_200), check(2, 1_500, b"other")).altered == 1


def test_what_nobody_sent_is_found() -> None:
    stranger = replace(GOOD, headers=[])
    seen = evidence([GOOD, stranger], [("timer.ingress/1/1", "missed")], [])
    unknown = judge([WANTED], {"a": SENT}, seen)[UNKNOWN]
    assert (unknown.altered, unknown.twice) == (1, 1)
