"""Lessons from failed delivery reports, from one aborted transaction to the next."""

import pytest

from proxy.dispatch.known_targets import KnownTargets, TopicRules
from proxy.dispatch.refusals import Refusals, Report
from proxy.protocol.outcomes import Rejection

REF = ("timer.ingress/0/", 7)


def a_report(
    code: str, *, is_dead_letter: bool = False, size_bytes: int = 100, was_alone: bool = False
) -> Report:
    rejection = Rejection(code, "the broker says")
    return Report(rejection, "orders", is_dead_letter, size_bytes, was_alone)


def described() -> KnownTargets:
    targets = KnownTargets()
    targets.rules["orders"] = TopicRules(1_000, needs_key=False)
    return targets


def learn(refusals: Refusals, *reports: Report, targets: KnownTargets | None = None) -> int:
    for place, report in enumerate(reports):
        refusals.reports[REF[0], REF[1] + place] = report
    return refusals.learn(targets or described())


def test_nothing_is_learnt_from_no_reports() -> None:
    assert learn(Refusals()) == 0


def test_refusal_that_is_the_records_own_is_final_at_once() -> None:
    refusals = Refusals()
    assert learn(refusals, a_report("not-authorised")) == 1
    assert refusals.refused[REF].code == "not-authorised"
    assert learn(refusals) == 0, "a report is read once"


@pytest.mark.parametrize("code", ["too-large", "publish-failed"])
def test_record_refused_with_its_record_batch_is_tried_alone_before_it_ends(code: str) -> None:
    refusals = Refusals()
    learn(refusals, a_report(code))
    assert (refusals.limited, refusals.alone, refusals.refused) == ({"orders"}, set(), {})
    learn(refusals, a_report(code))
    assert (refusals.alone, refusals.refused) == ({("orders", REF)}, {})
    learn(refusals, a_report(code, was_alone=True))
    assert refusals.refused[REF].code == code


def test_dead_letter_that_is_too_large_goes_without_its_value() -> None:
    refusals = Refusals()
    for was_alone in (False, False, True):
        report = a_report("too-large", is_dead_letter=True, was_alone=was_alone)
        assert learn(refusals, report) == 1
    assert (refusals.without_value, refusals.refused) == ({REF}, {})


def test_dead_letter_refused_for_another_reason_teaches_nothing() -> None:
    refusals = Refusals()
    assert learn(refusals, a_report("not-authorised", is_dead_letter=True)) == 0
    assert refusals.refused == {}


def test_record_batches_are_halved_where_nobody_says_how_large_they_may_be() -> None:
    refusals, targets = Refusals(), KnownTargets()
    for limit_bytes in (None, 400, 200):
        assert learn(refusals, *[a_report("too-large")] * 8, targets=targets) == 8
        assert targets.batch_limit_bytes("orders") == limit_bytes
    assert (refusals.alone, refusals.refused) == (set(), {})


def test_record_refused_alone_where_nobody_says_why_ends_all_that_are_as_large() -> None:
    refusals, targets = Refusals(), KnownTargets()
    for was_alone in (False, False, True):
        learn(refusals, a_report("too-large", was_alone=was_alone), targets=targets)
    assert refusals.refused.keys() == {REF}
    sizes = [targets.exceeding_bytes("orders", None, bytes(size), []) for size in (31, 32, 33)]
    assert sizes == [None, 100, 101]
    targets.try_sizes_again("orders")
    assert targets.exceeding_bytes("orders", None, bytes(1_000), []) is None
    assert targets.batch_limit_bytes("orders") == 50
