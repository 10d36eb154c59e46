"""Run-time changes of operators, in the settings topic."""

from __future__ import annotations

import json

import pytest
import structlog

from proxy.config.settings import OverdueLimit, Resumed, TargetLimit, by_precedence
from proxy.kafka import settings_topic
from proxy.kafka.settings_topic import (
    INGEST,
    LIMITS,
    PAUSED,
    RATE,
    RESUMED,
    RunTimeControls,
    overdue_key,
    settings_key,
)
from tests.unit.kafka.settings.followed_topic import GROUP, Topic, following

RULE = TargetLimit(overdue=OverdueLimit(older_than_ms=5_000, action="drop"))


def said(controls: RunTimeControls, key: str, value: object) -> None:
    controls.take(key, None if value is None else json.dumps(value).encode())


def state(controls: RunTimeControls) -> tuple[set[str], dict[str, Resumed]]:
    return set(controls.paused), dict(controls.resumed)


def test_a_pause_that_is_over_is_remembered_until_the_next_one() -> None:
    controls, key = RunTimeControls(GROUP), settings_key(PAUSED, GROUP, "orders-*")
    over = settings_key(RESUMED, GROUP, "orders-*")
    said(controls, key, {"paused_at": 1})
    assert state(controls) == ({"orders-*"}, {})
    said(controls, over, {"per_second": 500, "resumed_at": 2})
    said(controls, key, None)
    assert state(controls) == (set(), {"orders-*": Resumed(2, 500)})
    said(controls, key, {"paused_at": 3})
    assert state(controls) == ({"orders-*"}, {})
    said(controls, over, {"resumed_at": 4})
    said(controls, key, None)
    assert state(controls) == (set(), {"orders-*": Resumed(4)})


@pytest.mark.parametrize("value", [b"", b"yes", b"[]", b"{}"])
def test_whatever_a_pause_says_it_holds_back(value: bytes) -> None:
    controls = RunTimeControls(GROUP)
    controls.take(settings_key(PAUSED, GROUP, "orders"), value)
    assert state(controls) == ({"orders"}, {})


@pytest.mark.parametrize("rate", ["500", 0, -1, True, 2**62])
def test_a_rate_that_is_none_is_no_rate(rate: object) -> None:
    controls = RunTimeControls(GROUP)
    said(controls, settings_key(RESUMED, GROUP, "orders"), {"resumed_at": 2, "per_second": rate})
    assert state(controls) == (set(), {"orders": Resumed(2)})


@pytest.mark.parametrize("value", [{}, {"resumed_at": "now"}])
def test_the_end_of_a_pause_says_when_it_was(value: object) -> None:
    with pytest.raises(ValueError, match="resumed_at"):
        said(RunTimeControls(GROUP), settings_key(RESUMED, GROUP, "orders"), value)


def test_of_the_pauses_that_are_over_the_oldest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings_topic, "MOST_PAUSES", 2)
    controls = RunTimeControls(GROUP)
    for pattern, at_ms in (("a", 2), ("b", 1), ("c", 3)):
        said(controls, settings_key(RESUMED, GROUP, pattern), {"resumed_at": at_ms})
    assert [*controls.resumed] == ["a", "c"]


def test_taking_in_is_paused_for_one_group_until_the_record_is_deleted() -> None:
    controls, seen = RunTimeControls(GROUP), list[bool]()
    for group, value in (("other", {}), (GROUP, {"paused_at": 1}), ("other", None), (GROUP, None)):
        said(controls, settings_key(INGEST, group, "paused"), value)
        seen.append(controls.is_ingest_paused)
    assert seen == [False, True, True, False]


def test_the_bound_on_each_worker_is_the_newest_that_can_be_read() -> None:
    controls, key = RunTimeControls(GROUP), settings_key(RATE, GROUP, "worker")
    said(controls, key, {"per_second": 5, "set_at": 1})
    said(controls, settings_key(RATE, "other", "worker"), {"per_second": 6})
    odd_ones: list[object] = [{}, {"per_second": 0}, {"per_second": 10**7}, {"per_second": True}]
    for odd in odd_ones:
        with pytest.raises(ValueError, match="per_second is"):
            said(controls, key, odd)
    assert controls.max_per_second == 5
    said(controls, key, None)
    assert controls.max_per_second is None


def test_the_newest_limit_of_a_pattern_counts_and_what_is_none_changes_nothing() -> None:
    controls, key = RunTimeControls(GROUP), settings_key(LIMITS, GROUP, "orders")
    said(controls, overdue_key(GROUP, RULE.rules_json("orders") or ""), [])
    said(controls, key, {**RULE.model_dump(), "set_at": 5, "of_a_later_version": 1})
    said(controls, settings_key(LIMITS, "other", "orders"), {"per_second": 1})
    assert controls.limits == {"orders": RULE}
    odd_ones: list[object] = [{}, {"per_second": 0}, {"per_second": "many"}, [], {"overdue": {}}]
    for odd in odd_ones:
        with pytest.raises(ValueError):  # noqa: PT011 (the topic's reader says which record)
            said(controls, key, odd)
    assert controls.limits == {"orders": RULE}
    said(controls, key, None)
    assert controls.limits == {}


def test_there_is_a_most_of_limits_and_one_that_is_known_can_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings_topic, "MOST_LIMITS", 1)
    controls = RunTimeControls(GROUP)
    with structlog.testing.capture_logs() as logs:
        for pattern, per_second in (("a", 1), ("b", 1), ("a", 2)):
            said(controls, settings_key(LIMITS, GROUP, pattern), {"per_second": per_second})
    assert controls.limits == {"a": TargetLimit(per_second=2)}
    assert [(entry["kind"], entry["name"]) for entry in logs] == [("limits", "b")]


def test_a_name_comes_before_patterns_and_a_longer_pattern_before_a_shorter() -> None:
    one = TargetLimit(per_second=1)
    order = by_precedence(dict.fromkeys(["*", "orders-*", "a", "o?ders-e*", "orders-[e]u"], one))
    assert list(order) == ["a", "orders-[e]u", "o?ders-e*", "orders-*", "*"]


def test_a_rule_for_the_overdue_counts_once_it_was_read_among_those_kept_for_audits() -> None:
    both = TargetLimit(per_second=7, overdue=RULE.overdue)
    topic = Topic()
    settings = following(topic)
    for pattern, limit in (("a", RULE), ("b", both)):
        topic.note(settings_key(LIMITS, GROUP, pattern), limit.model_dump_json().encode())
    assert settings.look()
    assert settings.controls.limits == {"b": TargetLimit(per_second=7)}
    for pattern in "ab":
        rules = RULE.rules_json(pattern)
        assert rules is not None
        topic.note(overdue_key("other", rules), rules.encode())
    assert not settings.look()
    for pattern in "ab":
        rules = RULE.rules_json(pattern)
        assert rules is not None
        topic.note(overdue_key(GROUP, rules), rules.encode())
    assert settings.look()
    assert settings.controls.limits == {"a": RULE, "b": both}


def test_one_rule_too_many_is_said_and_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_topic, "MOST_OVERDUE_RULES", 1)
    topic = Topic()
    settings = following(topic)
    for pattern in "ab":
        rules = RULE.rules_json(pattern)
        assert rules is not None
        topic.note(overdue_key(GROUP, rules), rules.encode())
        topic.note(settings_key(LIMITS, GROUP, pattern), RULE.model_dump_json().encode())
    with structlog.testing.capture_logs() as logs:
        settings.look()
    assert settings.controls.limits == {"a": RULE}
    assert [entry["kind"] for entry in logs] == ["overdue rules"]


def test_a_limit_that_is_none_is_passed_over_with_a_warning() -> None:
    topic = Topic()
    topic.note(settings_key(LIMITS, GROUP, "orders"), b'{"per_second": 0}')
    with structlog.testing.capture_logs() as logs:
        assert not following(topic).look()
    assert [entry["key"] for entry in logs] == [settings_key(LIMITS, GROUP, "orders")]
