"""The demo's plan is consistent, and its table readable."""

from collections import Counter

import pytest

from proxy.cli.trial.demo.audit_process import Audited
from proxy.cli.trial.demo.command import COLUMNS, row, summary
from proxy.cli.trial.demo.group_result import GroupResult
from proxy.cli.trial.demo.plan import Step, expected_verdicts, plain_plan
from proxy.cli.trial.demo.stories import (
    CHECKS_MS,
    ENVIRONMENT,
    MANY,
    PURGED,
    ROLL_AFTER_S,
    purge_control,
    story_plan,
)
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.config.sources import load_settings
from proxy.records.rejection import REASONS

OUTCOMES = {
    *("cancelled", "replaced", "dead-lettered", "rolled", "requeued", "rolled-back", "expired"),
    *("applied", "missed"),
}
PLAN = [*plain_plan(Settings(), 1_000_000, seed=1), *story_plan(), purge_control(0)]


def test_the_plan_names_each_record_once_and_only_reasons_and_outcomes_that_exist() -> None:
    assert len({wanted.ident for wanted in PLAN}) == len(PLAN) >= 100
    assert {wanted.reason for wanted in PLAN} - {None} <= set(REASONS)
    assert {end for wanted in PLAN for end in wanted.ends} == OUTCOMES


def test_what_is_sent_after_a_record_is_sent_in_a_later_step() -> None:
    steps = {wanted.ident: wanted.step for wanted in PLAN}
    later = [wanted for wanted in PLAN if wanted.after is not None]
    assert later
    assert all(steps[wanted.after or ""] < wanted.step for wanted in later)
    assert set(steps.values()) == set(Step)


def test_a_recall_names_a_record_that_was_sent_before() -> None:
    steps = {wanted.ident: wanted.step for wanted in PLAN}
    recalls = [wanted for wanted in PLAN if wanted.recalls is not None]
    assert recalls
    assert all(steps[wanted.recalls or ""] < wanted.step for wanted in recalls)


def test_what_a_purge_writes_belongs_to_what_it_ends() -> None:
    purged = [wanted for wanted in PLAN if wanted.group == PURGED]
    assert [one.ends for one in purged] == [("cancelled",)] * MANY + [("applied",)]


def test_only_the_record_that_is_to_be_rewritten_waits_so_long() -> None:
    long = [wanted.group for wanted in PLAN if wanted.delay_ms >= ROLL_AFTER_S * 1_000]
    assert long == ["rewritten"]


def test_the_settings_of_the_demo_s_proxy_ask_at_the_times_that_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    settings = load_settings(None)
    asked = settings.transactions
    times = [asked.immunity_ms + n * asked.check_interval_ms for n in range(asked.max_checks)]
    assert tuple(times) == CHECKS_MS
    policy = policy_of(settings, None)
    assert policy.roll_after_ms == ROLL_AFTER_S * 1_000
    assert policy.retry_of("demo-group").delays_ms[0] == 10_000
    assert policy.retry_of("demo-group").max_attempts == 16
    assert policy.retry_of("").max_attempts == 3


def test_each_record_is_expected_to_get_one_verdict_as_are_those_that_the_proxy_writes() -> None:
    parked = {"parked": MANY, "let go": MANY}
    written_by_the_proxy = {"rolled": 1, "requeued": 2, "expired": 1, "moved": 1, **parked}
    expected = expected_verdicts(PLAN)
    assert expected.total() == len(PLAN) + sum(written_by_the_proxy.values())
    assert set(expected) == {"delivered", *(name.replace("-", "_") for name in OUTCOMES)}


def test_a_row_says_what_was_found_and_what_was_wrong() -> None:
    result = GroupResult(
        sent=2, arrived=1, ended=Counter(cancelled=1, applied=2), lateness_ms=[3, 8]
    )
    shown = row("cancelled", result)
    assert len(shown) == len(COLUMNS)
    assert shown == ["cancelled", "2", "1", "cancelled, 2 applied", "8 ms", "yes"]
    assert row("x", GroupResult(missing=1, early=2))[-1] == "1 missing, 2 early"


def test_the_summary_keeps_its_keys() -> None:
    keys = {"held", "sent", "arrived", "missing", "twice", "early", "altered", "audit"}
    assert keys <= summary({}, GroupResult(), None).keys()


def test_without_an_audit_nothing_is_said_of_contents_that_were_not_compared() -> None:
    assert summary({}, GroupResult(), None)["altered"] is None
    assert summary({}, GroupResult(), Audited({}, {}, {}))["altered"] == 0
    assert summary({}, GroupResult(altered=1), None)["altered"] == 1
