"""The demo's judge sees every way in which a delivery can be wrong."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.cli.demo_judge import Arrival, Sent, Verdict, judge
from proxy.cli.demo_plan import DEMO_ID, Wanted, make_plan
from proxy.rejection import REASONS
from proxy.settings import Settings

DEAD_LETTERS = "timer.dead-letters"
SENT = Sent("timer.ingress/0/7", 1_000)
WANTED = Wanted(
    ident="a",
    group="delay",
    topic="orders",
    headers=[("timer-topic", b"orders"), ("timer-delay", b"500")],
    key=b"k",
    value=b"v",
    target_key=b"k",
    delay_ms=500,
    own_headers=[(DEMO_ID, b"a")],
)
STAMPS = [("timer-origin", b"timer.ingress/0/7"), ("timer-due", b"1500")]
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


def verdict_on(arrivals: Sequence[Arrival], wanted: Wanted = WANTED) -> Verdict:
    return judge([wanted], {"a": SENT}, arrivals, DEAD_LETTERS)["delay"]


def test_a_record_that_arrived_once_unchanged_and_not_early_holds() -> None:
    verdict = verdict_on([GOOD])
    assert verdict == Verdict(sent=1, arrived=1, lateness_ms=[10])
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


def test_an_arrival_that_nobody_sent_is_found() -> None:
    stranger = replace(GOOD, headers=[])
    assert judge([WANTED], {"a": SENT}, [GOOD, stranger], DEAD_LETTERS)["unknown"].altered == 1


def test_the_plan_names_each_record_once_and_only_reasons_that_exist() -> None:
    plan = make_plan(Settings(), 1_000_000, seed=1)
    assert len({wanted.ident for wanted in plan}) == len(plan) >= 100
    reasons = {wanted.reason for wanted in plan} - {None}
    assert reasons <= set(REASONS)
    assert max(w.delay_ms for w in plan) <= 25_000
