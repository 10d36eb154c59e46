"""`move` counts, asks, and moves what was counted, call by call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import admin_port, pending
from proxy.cli.admin_port import ProxyUnreachable
from proxy.cli.app import app

COUNTED: dict[str, Any] = {
    "dry_run": True,
    "records": 5,
    "cut": False,
    "first_due": 1_000,
    "last_due": 2_000,
    "sample": [],
    "outcomes": {},
    "left_out": {"half-message": 1},
    "partitions": [0],
    "confirm": "first",
}
CALLS: dict[str, Any] = {
    "first": {"records": 3, "outcomes": {"replaced": 3}, "left_out": {}, "confirm": "second"},
    "second": {"records": 1, "outcomes": {"replaced": 1, "missed": 1}, "confirm": None},
}
SILENT: dict[str, Any] = {
    "complete": False,
    "unanswered": [{"instance": "two", "reason": "It did not answer within 5 s."}],
}
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    bodies: Asked = []

    def answer(address: str, path: str, _token: str | None, **how: Any) -> dict[str, Any]:
        if address == "away":
            raise ProxyUnreachable("No proxy answers at away.", "")
        assert (path, how["method"]) == ("/moves", "POST")
        body = how["body"]
        bodies.append((address, body))
        if body.get("confirm") == "second" and body["targets"] == "flaky" and len(bodies) < 5:
            raise ProxyUnreachable("The proxy starts.", "")
        if body["targets"] == "silent":
            done = COUNTED if body["dry_run"] else {**COUNTED, "records": 0, "left_out": {}}
            return {**done, **SILENT}
        if body["dry_run"]:
            return {**COUNTED, "cut": body["targets"] == "many"}
        return {**COUNTED, "left_out": {}, **CALLS[body["confirm"]]}

    monkeypatch.setattr(admin_port, "ask", answer)
    return bodies


def run(*arguments: str, answers: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["move", *arguments, "--admin", "a"], input=answers)
    return done.exit_code, done.output


def test_what_was_counted_is_moved_call_by_call(asked: Asked) -> None:
    code, said = run("orders", "--at", "now", "--to", "5", answers="y\n")
    assert "5 records for orders can be moved" in said
    assert "4 records moved. Not moved (missed): 1." in said
    assert code == 1, "one of them has ended first"
    body = {"targets": "orders", "id_prefix": "", "due_to": 5, "deliver_at": "now"}
    assert [one for _, one in asked] == [
        {**body, "dry_run": True},
        {**body, "dry_run": False, "confirm": "first"},
        {**body, "dry_run": False, "confirm": "second"},
    ]


def test_a_call_that_fails_is_repeated(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "AGAIN_S", 0)
    assert "4 records moved." in run("flaky", "--at", "now", "--yes")[1]
    assert [one.get("confirm") for _, one in asked] == [None, "first", *["second"] * 3]


def test_a_silent_instance_is_asked_again_a_few_times_and_named(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "AGAIN_S", 0)
    monkeypatch.setattr(pending, "MOST_FAILURES", 3)
    code, said = run("silent", "--at", "now", "--dry-run")
    assert (code, "two did not answer" in said, len(asked)) == (1, True, 1)
    code, said = run("silent", "--at", "now", "--yes")
    assert (code, "0 records moved." in said) == (1, True)
    assert said.count("two did not answer") == 2, "in the count, and at the end"
    assert [one.get("confirm") for _, one in asked] == [None, None, *["first"] * 4]


def test_nothing_is_moved_without_a_yes(asked: Asked) -> None:
    assert run("orders", "--later", "2h", answers="n\n")[0] == 1
    code, said = run("orders", "--later", "2h", "--dry-run")
    assert (code, said.splitlines()[-1]) == (0, "Nothing was changed.")
    assert all(one["dry_run"] for _, one in asked)


def test_a_cut_or_incomplete_list_is_said(asked: Asked) -> None:
    code, said = run("many", "--at", "now", "--dry-run")
    assert (code, "There are more" in said) == (1, True)
    code, said = run("orders", "--at", "now", "--yes", "--json", "--admin", "away")
    done = json.loads(said)
    assert (code, done["records"], list(done["silent"])) == (1, 4, ["away"])


@pytest.mark.parametrize("wrong", [(), ("--at", "now", "--later", "1h"), ("--at", "now", "--json")])
def test_a_move_needs_one_time_and_json_needs_a_decision(
    asked: Asked, wrong: tuple[str, ...]
) -> None:
    assert run("orders", *wrong)[0] == 2
    assert asked == []
