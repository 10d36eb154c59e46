"""`reschedule` sends a record's new time to the admin port, and reports the outcome."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import admin_port
from proxy.cli import pending as reschedule
from proxy.cli.app import app

ORIGIN = "timer.ingress/0/5"
NOON, NOON_MS = "2030-01-01T12:00:00Z", 1_893_499_200_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Record the admin requests. The origin's topic selects the outcome."""
    calls: list[tuple[str, Any]] = []

    def answer(_address: str, path: str, _token: str | None, **how: Any) -> dict[str, Any]:
        calls.append((path, how["body"]))
        topic = path.split("/")[2]
        outcome = {"late": "missed", "behind": None}.get(topic, "replaced")
        return {"origin": "timer.ingress/0/9", "outcome": outcome, "detail": None}

    monkeypatch.setattr(admin_port, "ask", answer)
    return calls


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["reschedule", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_the_new_time_is_sent_as_epoch_ms(asked: list[tuple[str, Any]]) -> None:
    code, said = run(ORIGIN, "--at", NOON)
    assert (code, "moved: due 2030-01-01" in said, "timer.ingress/0/9" in said) == (0, True, True)
    assert asked == [(f"/records/{ORIGIN}?wait=10s", {"deliver_at": NOON_MS})]


@pytest.mark.parametrize("command", [["reschedule", "--at", NOON], ["recall"]])
def test_for_an_id_in_place_of_an_origin_the_error_says_how_to_find_the_origin(
    command: list[str],
) -> None:
    for given, asked_for in (("r-1", "r-1"), ("a b", "'a b'"), ("\x1b[2J", "ID")):
        done = CliRunner().invoke(app, [*command, given], env={"COLUMNS": "400"})
        assert (done.exit_code, f"`kafka-delay-proxy find --id {asked_for}`" in done.output) == (
            2,
            True,
        ), done.output


def test_a_delay_counts_from_now(
    asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reschedule, "wall_clock_ms", lambda: NOON_MS)
    assert run(ORIGIN, "--delay", "5m", "--json")[0] == 0
    assert asked[0][1] == {"deliver_at": NOON_MS + 300_000}


def test_seconds_are_not_taken_for_milliseconds(asked: list[tuple[str, Any]]) -> None:
    code, said = run(ORIGIN, "--at", str(NOON_MS // 1_000))
    assert (code, asked) == (2, [])
    assert "1970-01-2" in said
    assert "milliseconds" in said


@pytest.mark.parametrize(
    ("topic", "says"), [("late", "has already ended"), ("behind", "not applied yet")]
)
def test_what_was_not_moved_is_said_and_the_exit_code_is_1(
    asked: list[tuple[str, Any]], topic: str, says: str
) -> None:
    code, said = run(f"{topic}/0/5", "--at", NOON)
    assert (code, says in said, len(asked)) == (1, True, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "either --at or --delay"),
        (["--at", NOON, "--delay", "5m"], "either --at or --delay"),
        (["--at", "noon"], "RFC 3339"),
        (["--delay", "soon"], "is not a delay"),
    ],
)
def test_a_time_that_cannot_be_read_is_refused(
    asked: list[tuple[str, Any]], options: list[str], says: str
) -> None:
    code, said = run(ORIGIN, *options)
    assert (code, says in said, asked) == (2, True, [])
