"""The calls that change ingest and release at run time."""

from __future__ import annotations

import pytest

from proxy.admin import targets
from proxy.config.settings import OverdueSettings, ReleaseSettings
from tests.support.simulation.admin_api import MadeUpApi

WHOLE = {"complete": True, "unanswered": []}
RULE = {"older_than": "90m", "action": "dead-letter"}


def test_a_pause_is_lifted_at_a_rate_which_another_pause_or_resume_forgets() -> None:
    made = MadeUpApi()
    made.ask("/pauses/orders", "PUT")
    assert made.ask("/pauses/orders?per_second=500", "DELETE") == (
        200,
        {"pattern": "orders", "paused": False, "per_second": 500, "in_force": True},
    )
    assert made.ask("/pauses") == (200, {"paused": [], "release_rates": {"orders": 500}})
    made.ask("/pauses/orders", "PUT")
    assert made.ask("/pauses") == (200, {"paused": ["orders"], "release_rates": {}})
    made.ask("/pauses/orders?per_second=1000000", "DELETE")
    made.ask("/pauses/orders", "DELETE")
    assert made.ask("/pauses")[1]["release_rates"] == {}


@pytest.mark.parametrize("rate", ["0", "1000001", "-1", "1.5", "many", "", "12345678"])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    made = MadeUpApi()
    made.ask("/pauses/orders", "PUT")
    code, said = made.ask(f"/pauses/orders?per_second={rate}", "DELETE")
    assert (code, "from 1 to 1000000" in said["detail"]) == (400, True)
    assert made.broker.paused == {"orders"}


def test_taking_in_is_paused_shown_and_goes_on() -> None:
    made = MadeUpApi()
    assert made.ask("/ingest") == (200, {"paused": False, "unread": 0, **WHOLE})
    assert made.ask("/ingest/paused", "PUT") == (200, {"paused": True, "in_force": True})
    assert made.ask("/ingest")[1]["paused"]
    assert made.ask("/ingest/paused", "DELETE") == (200, {"paused": False, "in_force": True})
    assert not made.ask("/ingest")[1]["paused"]


def test_what_no_worker_has_noticed_in_time_is_accepted_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "NOTICED_WITHIN_S", 0.01)
    made = MadeUpApi()
    made.broker.is_noticed = False
    assert made.ask("/ingest/paused", "PUT") == (202, {"paused": True, "in_force": False})
    code, said = made.ask("/limits/orders", "PUT", {"per_second": 5})
    assert (code, said["in_force"]) == (202, False)
    assert made.ask("/pauses/orders?per_second=5", "DELETE")[0] == 202


def test_limits_set_at_run_time_are_shown_before_those_of_the_settings() -> None:
    rule = OverdueSettings(targets="*", older_than_ms=1_500, action="drop")
    made = MadeUpApi(release=ReleaseSettings(per_target={"orders": 9}, overdue=(rule,)))
    made.ask("/limits/orders-%2A", "PUT", {"overdue": RULE})
    assert made.ask("/limits/orders", "PUT", {"per_second": 5.0}) == (
        200,
        {"pattern": "orders", "per_second": 5, "overdue": None, "in_force": True},
    )
    code, said = made.ask("/limits")
    assert (code, said["max_per_second"]) == (200, None)
    assert [tuple(one.values()) for one in said["limits"]] == [
        ("orders", 5, None, "run-time"),
        ("orders-*", None, RULE, "run-time"),
        ("orders", 9, None, "settings"),
        ("*", None, {"older_than": "1500ms", "action": "drop"}, "settings"),
    ]


def test_a_limit_takes_the_place_of_the_one_before_it_and_can_be_cleared() -> None:
    made = MadeUpApi()
    made.ask("/limits/orders", "PUT", {"per_second": 5})
    made.ask("/limits/orders", "PUT", {"overdue": RULE})
    assert made.ask("/limits")[1]["limits"] == [
        {"pattern": "orders", "per_second": None, "overdue": RULE, "source": "run-time"}
    ]
    assert made.ask("/limits/orders", "DELETE")[0] == 200
    assert made.ask("/limits")[1]["limits"] == []


def test_the_bound_on_each_worker_is_set_in_place_of_the_settings_and_taken_back() -> None:
    made = MadeUpApi(release=ReleaseSettings(max_per_second=9))

    def shown(code: int, per_second: int, source: str, **more: bool) -> tuple[int, object]:
        return code, {"max_per_second": per_second, "max_per_second_source": source, **more}

    said = made.ask("/limits", "PUT", {"per_second": 5})
    assert said == shown(200, 5, "run-time", in_force=True)
    _, limits = made.ask("/limits")
    assert (limits["max_per_second"], limits["max_per_second_source"]) == (5, "run-time")
    assert made.ask("/limits", "DELETE") == shown(200, 9, "settings", in_force=True)
    for wrong in ({}, {"per_second": 0}, {"per_second": None}, {"overdue": RULE}):
        assert made.ask("/limits", "PUT", wrong)[0] == 400


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, "name per_second, overdue, or both"),
        ({"per_second": 0}, "per_second"),
        ({"per_second": None}, "leave the field out"),
        ({"per_second": True}, "per_second"),
        ({"overdue": {"older_than": "0s", "action": "drop"}}, "overdue.older_than"),
        ({"overdue": {"older_than": "1h", "action": "forget"}}, "overdue.action"),
        ({"overdue": {"older_than": "1h"}}, "overdue.action"),
        ({"cap": 5}, "cap"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(body: object, found: str) -> None:
    made = MadeUpApi()
    code, said = made.ask("/limits/orders", "PUT", body)
    assert (code, found in said["detail"], made.broker.limits) == (400, True, {})


def test_one_limit_too_many_is_refused_and_one_that_is_there_can_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "MOST_LIMITS", 1)
    made = MadeUpApi()
    for per_second in (1, 2):
        assert made.ask("/limits/a", "PUT", {"per_second": per_second})[0] == 200
    code, said = made.ask("/limits/b", "PUT", {"per_second": 1})
    assert (code, said["error"]) == (409, "too-many")
