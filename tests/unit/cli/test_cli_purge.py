"""`purge` counts, asks, and reports the end of deliveries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import admin_port, pending
from proxy.cli.admin_port import InstanceSilent, ProxyUnreachable
from proxy.cli.app import app

COUNTED = {
    "targets": "orders-*",
    "due_from": None,
    "due_to": None,
    "dry_run": True,
    "records": 1_234,
    "counted_all": True,
    "partitions": [0, 1],
}
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record the requests to the admin ports. All are applied but `behind`. The second instance is
    `b:1`, and `c:1` does not answer."""
    bodies: list[dict[str, Any]] = []

    def answer(address: str, _path: str, _token: str | None, **how: Any) -> dict[str, Any]:
        if address == "c:1":
            raise ProxyUnreachable("c:1 is silent.")
        bodies.append(how["body"])
        if address == "b:1" and how["body"]["dry_run"]:
            return {**COUNTED, **how["body"], "records": 6, "partitions": [3]}
        is_applied = how["body"]["targets"] != "behind"
        done = {} if how["body"]["dry_run"] else {"purges": ["t/0/1"], "applied": is_applied}
        return {**COUNTED, **how["body"], **done}

    monkeypatch.setattr(admin_port, "ask", answer)
    monkeypatch.setattr(
        pending, "missing_partitions", lambda _, covered: sorted({0, 2} - {*covered})
    )
    return bodies


def run(*arguments: str, answers: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["purge", *arguments], input=answers)
    return done.exit_code, done.output


def test_a_dry_run_only_counts(asked: list[dict[str, Any]]) -> None:
    code, said = run("orders-*", "--dry-run")
    assert (code, len(asked)) == (0, 1)
    assert said == (
        "1,234 records for orders-* are pending. Partitions covered: 0, 1.\n"
        "Not covered: 2. Name every instance with --admin.\nNothing was changed.\n"
    )


def test_it_is_asked_for_first_and_done_on_yes_alone(asked: list[dict[str, Any]]) -> None:
    assert run("orders-*", answers="n\n")[0] == 1
    assert [one["dry_run"] for one in asked] == [True]
    code, said = run("orders-*", answers="y\n")
    assert (code, "the pending records for orders-* will not be delivered: t/0/1" in said) == (
        0,
        True,
    )


def test_each_instance_counts_and_one_purges(asked: list[dict[str, Any]]) -> None:
    each = ("--admin", "c:1", "--admin", "a:1", "--admin", "b:1")
    code, said = run("orders-*", *each, "--yes", "--json")
    done = json.loads(said)
    assert [one["dry_run"] for one in asked] == [True, True, False]
    assert (code, done["records"], done["partitions"]) == (0, 1_240, [0, 1, 3])
    assert (done["partitions_missing"], done["silent"]) == ([2], {"c:1": "c:1 is silent."})


def test_whoever_confirms_is_told_who_is_silent_and_what_is_counted_twice(
    asked: list[dict[str, Any]],
) -> None:
    code, said = run("orders", "--admin=a:1", "--admin=c:1", "--admin=d:1", answers="n\n")
    assert (code, len(asked)) == (1, 2)
    assert "Counted more than once: 0, 1." in said
    assert said.index("c:1: c:1 is silent.") < said.index("Purge these")


def test_a_count_without_one_that_is_silent_is_no_success(asked: list[dict[str, Any]]) -> None:
    done = CliRunner().invoke(app, ["purge", "orders", "--dry-run", "--admin=a:1", "--admin=c:1"])
    assert (done.exit_code, "1,234 records" in done.output) == (1, True)
    assert isinstance(done.exception, InstanceSilent)


def test_times_are_sent_as_epoch_ms(asked: list[dict[str, Any]]) -> None:
    run("orders-*", "--yes", "--from", "1970-01-01T00:00:01Z", "--to", "2000")
    assert (asked[1]["due_from"], asked[1]["due_to"]) == (1_000, 2_000)
    assert run("orders-*", "--from", "soon")[0] == 2


def test_one_that_does_not_count_everywhere_yet_is_no_success(asked: list[dict[str, Any]]) -> None:
    code, said = run("behind", "--yes")
    assert (code, "Some partitions have not read it yet" in said) == (1, True)


def test_json_is_what_the_api_says_and_nobody_is_asked(asked: list[dict[str, Any]]) -> None:
    assert (run("orders-*", "--json")[0], asked) == (2, [])
    code, said = run("orders-*", "--json", "--yes")
    assert (code, json.loads(said)["applied"]) == (0, True)
