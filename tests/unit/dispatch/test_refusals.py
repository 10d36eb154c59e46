"""What is learnt from delivery reports that say no, from one aborted transaction to the next."""

import pytest

from proxy.dispatch.refusals import Refusals, Report
from proxy.records.rejection import Rejection

REF = ("timer.ingress/0/", 7)


def a_report(code: str, *, is_dead_letter: bool = False) -> Report:
    return Report(Rejection(code, "the broker says"), "orders", is_dead_letter)


def learn(refusals: Refusals, report: Report) -> int:
    refusals.reports[REF] = report
    return refusals.learn()


def test_nothing_is_learnt_from_no_reports() -> None:
    assert Refusals().learn() == 0


def test_refusal_that_is_the_records_own_is_final_at_once() -> None:
    refusals = Refusals()
    assert learn(refusals, a_report("not-authorised")) == 1
    assert refusals.refused[REF].code == "not-authorised"
    assert refusals.learn() == 0, "a report is read once"


@pytest.mark.parametrize("code", ["too-large", "publish-failed"])
def test_record_refused_with_its_record_batch_is_tried_alone_before_it_ends(code: str) -> None:
    refusals = Refusals()
    learn(refusals, a_report(code))
    assert (refusals.limited, refusals.alone, refusals.refused) == ({"orders"}, set(), {})
    learn(refusals, a_report(code))
    assert (refusals.alone, refusals.refused) == ({("orders", REF)}, {})
    learn(refusals, a_report(code))
    assert refusals.refused[REF].code == code


def test_dead_letter_that_is_too_large_goes_without_its_value() -> None:
    refusals = Refusals()
    for _ in range(3):
        assert learn(refusals, a_report("too-large", is_dead_letter=True)) == 1
    assert (refusals.without_value, refusals.refused) == ({REF}, {})


def test_dead_letter_refused_for_another_reason_teaches_nothing() -> None:
    refusals = Refusals()
    assert learn(refusals, a_report("not-authorised", is_dead_letter=True)) == 0
    assert refusals.refused == {}
