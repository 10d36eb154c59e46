"""`pause`, `resume`, `pauses`, `limits` and `changes`: admin requests, output and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import admin_port
from proxy.cli.admin_port import ProxyUnreachable
from proxy.cli.app import app
from proxy.cli.release import CHANGED_WITHIN_S

LIMITS = {
    "limits": [
        {
            "pattern": "orders",
            "per_second": 1_500,
            "overdue": {"older_than": "1h", "action": "drop"},
            "source": "run-time",
        },
        {"pattern": "*", "per_second": 9, "overdue": None, "source": "settings"},
    ],
    "max_per_second": None,
    "max_per_second_source": "settings",
}
CAPPED = {**LIMITS, "max_per_second": 2_000, "max_per_second_source": "run-time"}
Asked = list[tuple[str, str, str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Record requests by address. `away` does not answer. `slow` has not applied them yet."""
    calls: Asked = []

    def answer(address: str, path: str, _token: str | None, **how: Any) -> dict[str, Any]:
        method = how.get("method", "GET")
        assert how["within_s"] == CHANGED_WITHIN_S
        calls.append((address, method, path, how.get("body")))
        if address == "away":
            raise ProxyUnreachable("No proxy answers at away.", "")
        replies: dict[str, Any] = {
            "/pauses": {"paused": ["orders-*"], "release_rates": {"bills": 500}},
            "/ingest": {"paused": True, "unread": 7},
            "/limits": CAPPED if address == "capped" else LIMITS,
        }
        done = {"paused": True, "in_force": address != "slow"}
        found: dict[str, Any] = replies[path] if method == "GET" else done
        return found

    monkeypatch.setattr(admin_port, "ask", answer)
    return calls


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_a_pattern_is_paused_and_resumed_at_a_rate(asked: Asked) -> None:
    assert run("pause", "orders-*", "--admin", "a") == (0, "orders-* is paused.\n")
    assert run("resume", "orders-*", "--per-second", "500", "--admin", "a")[0] == 0
    assert run("resume", "orders-*", "--admin", "a") == (0, "orders-* is resumed.\n")
    path = "/pauses/orders-%2A"
    assert asked == [
        ("a", "PUT", path, None),
        ("a", "DELETE", f"{path}?per_second=500", None),
        ("a", "GET", "/pauses", None),
        ("a", "DELETE", path, None),
    ]


def test_what_is_not_paused_is_not_resumed_and_what_is_gets_named(asked: Asked) -> None:
    done = CliRunner().invoke(app, ["resume", "orders", "--admin", "a"])
    assert str(done.exception).endswith("Paused: orders-*.")
    assert [one[1] for one in asked] == ["GET"]
    assert run("resume", "bills", "--admin", "a")[0] == 0, "to forget its rate"


def test_taking_in_is_paused_and_goes_on(asked: Asked) -> None:
    assert run("pause", "--ingest", "--admin", "a") == (0, "The ingest is paused.\n")
    assert run("resume", "--ingest", "--admin", "a") == (0, "The ingest is resumed.\n")
    assert [call[1:3] for call in asked] == [
        ("PUT", "/ingest/paused"),
        ("DELETE", "/ingest/paused"),
    ]


def test_what_an_instance_has_not_noticed_or_not_heard_is_no_success(asked: Asked) -> None:
    code, said = run("pause", "orders", "--admin", "a", "--admin", "slow")
    assert (code, "some instances have not applied it" in said) == (1, True)
    code, said = run("pause", "orders", "--admin", "a", "--admin", "away")
    assert (code, "away: No proxy answers" in said) == (1, True)
    code, said = run("pause", "orders", "--json", "--admin", "away", "--admin", "a")
    assert (code, json.loads(said)["in_force"]) == (1, False)
    assert list(json.loads(said)["silent"]) == ["away"]
    assert len(asked) == 6


def test_where_none_answers_it_is_an_error(asked: Asked) -> None:
    done = CliRunner().invoke(app, ["pause", "orders", "--admin", "away"])
    assert isinstance(done.exception, ProxyUnreachable)


def test_pauses_are_listed(asked: Asked) -> None:
    code, said = run("pauses", "--admin", "a", "--admin", "b")
    assert (code, said.splitlines()) == (
        0,
        [
            "paused: orders-*",
            "resumed at 500 records a second: bills",
            "the ingest is paused: 14 ingress records are unread",
        ],
    )
    _, said = run("pauses", "--json", "--admin", "a", "--admin", "away")
    assert json.loads(said)["ingest"] == {"paused": True, "unread": 7}
    assert list(json.loads(said)["silent"]) == ["away"]


def test_limits_are_listed_with_where_they_come_from(asked: Asked) -> None:
    code, said = run("limits", "--admin", "a", "--admin", "b")
    assert (code, [line.split() for line in said.splitlines()[1:]]) == (
        0,
        [["orders", "1,500", "1h:drop", "run-time"], ["*", "9", "settings"]],
    )
    _, said = run("limits", "--json", "--admin", "a")
    bound = {"max_per_second": None, "source": "settings"}
    assert json.loads(said) == {**LIMITS, "each_worker": [bound], "silent": {}}


def test_limits_are_set_and_cleared(asked: Asked) -> None:
    arguments = ("limits", "set", "orders", "--per-second", "5", "--overdue", "60m:dead-letter")
    assert run(*arguments, "--admin", "a") == (0, "orders is limited.\n")
    assert run("limits", "clear", "orders", "--admin", "a")[0] == 0
    rule = {"older_than": "1h", "action": "dead-letter"}
    assert asked == [
        ("a", "PUT", "/limits/orders", {"per_second": 5, "overdue": rule}),
        ("a", "GET", "/limits", None),
        ("a", "DELETE", "/limits/orders", None),
    ]


def test_each_worker_is_limited_as_a_whole(asked: Asked) -> None:
    cap = ("limits", "set", "--worker", "--per-second", "2000", "--admin", "capped")
    assert run(*cap) == (0, "Each worker is limited.\n")
    rows = run("limits", "--admin", "capped", "--admin", "a")[1].splitlines()
    assert (rows[1].split(), len(rows)) == (["(each", "worker)", "2,000", "run-time"], 4)
    cleared = run("limits", "clear", "--worker", "--admin", "capped")
    assert cleared == (0, "A worker as a whole has no run-time limit any more.\n")
    assert asked[0] == ("capped", "PUT", "/limits", {"per_second": 2_000})
    assert asked[-1] == ("capped", "DELETE", "/limits", None)
    done = CliRunner().invoke(app, ["limits", "clear", "--worker", "--admin", "a"])
    assert "No limit was set at run time for each worker." in str(done.exception)


def test_what_the_settings_limit_is_not_cleared_at_run_time(asked: Asked) -> None:
    done = CliRunner().invoke(app, ["limits", "clear", "*", "--admin", "a"])
    assert "No limit was set at run time for *." in str(done.exception)
    assert [one[1] for one in asked] == ["GET"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause",),
        ("pause", "orders", "--ingest"),
        ("pause", "a/b"),
        ("resume", "--ingest", "--per-second", "5"),
        ("resume", "orders", "--per-second", "0"),
        ("limits", "set", "orders"),
        ("limits", "set", "orders", "--overdue", "1h"),
        ("limits", "set", "orders", "--overdue", "soon:drop"),
        ("limits", "set", "orders", "--overdue", "1h:forget"),
        ("limits", "clear", ""),
        ("limits", "clear"),
        ("limits", "clear", "orders", "--worker"),
        ("limits", "set", "--per-second", "5"),
        ("limits", "set", "--worker", "--overdue", "1h:drop"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_asked(
    asked: Asked, arguments: tuple[str, ...]
) -> None:
    assert (run(*arguments)[0], asked) == (2, [])


def test_changes_are_listed_without_what_could_move_a_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = {"call": "PUT /api/v1/pauses/x", "body": "\x1b[2J", "status": 403, "left_out": 2}
    who = {"at": 0, "caller": "eve", "role": "viewer", "address": "192.0.2.1", "instance": "a"}
    said = {"changes": [{**who, **call, "result": "r" * 900}]}
    paths: list[str] = []

    def answer(_address: str, path: str, _token: str | None, **_: Any) -> dict[str, Any]:
        paths.append(path)
        return said

    monkeypatch.setattr(admin_port, "ask", answer)
    code, shown = run("changes", "--limit", "7", "--utc")
    assert (code, paths) == (0, ["/changes?limit=7"])
    row = shown.splitlines()[1]
    words = ["1970-01-01", "00:00:00.000+00:00", "eve", "viewer", "192.0.2.1", "403"]
    assert row.split()[:6] == words
    assert "\x1b" not in shown
    assert "r" * 101 not in shown
    assert "2 refused changes" in row
    assert json.loads(run("changes", "--json")[1]) == said
    assert run("changes", "--limit", "1001")[0] == 2
