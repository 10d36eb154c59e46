"""The record of changes: who, what, from where, and the result, also of refused changes."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing
from pathlib import Path
from struct import pack
from typing import Any, cast

import pytest
import structlog

from proxy.admin import calls as calls_module
from proxy.admin.app import CALLS
from proxy.admin.calls import CALLS_AT_ONCE
from proxy.admin.changes import (
    MOST_CHARACTERS,
    REFUSED_AT_MOST,
    REFUSED_WITHIN_S,
    Change,
    ChangeRecorder,
    read_change,
)
from proxy.admin.problem import Problem
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings, AdminToken
from tests.support.simulation.admin_api import MadeUpApi, MadeUpBroker
from tests.support.waiting import wait_for

LIMIT_S = 60.0
VIEWER, OPERATOR = "a-token-of-the-viewer", "a-token-of-the-operator"


@pytest.fixture
def made(tmp_path: Path) -> MadeUpApi:
    entries = {}
    for name, token in (("viewer", VIEWER), ("operator", OPERATOR)):
        (tmp_path / name).write_text(token)
        role = cast(Any, name)
        entries[f"{name}-of-shop"] = AdminToken(role=role, file=tmp_path / name)
    return MadeUpApi(AdminSettings(port=0, tokens=entries))


def ask(made: MadeUpApi, token: str, call: str, body: object = None) -> tuple[int, Any]:
    method, _, url = call.partition(" ")
    return made.ask(url, method, body, {"authorization": f"Bearer {token}"})


def recorded(made: MadeUpApi) -> list[dict[str, Any]]:
    return [json.loads(value) for value in made.broker.changes]


def a_change(status: int = 200) -> Change:
    return Change(
        at=1,
        caller="me",
        role="admin",
        address="192.0.2.1",
        instance="a",
        call="PUT /api/v1/ingest/paused",
        body="",
        status=status,
        result="{}",
        left_out=0,
    )


def test_a_change_is_recorded_with_caller_address_call_and_result(made: MadeUpApi) -> None:
    with structlog.testing.capture_logs() as logged:
        ask(made, OPERATOR, "POST /cancellations?wait=1s", {"id": "order-17", "partition": 1})
    (found,) = recorded(made)
    assert (found["caller"], found["role"]) == ("operator-of-shop", "operator")
    assert found["address"] == "127.0.0.1"
    assert found["call"] == "POST /api/v1/cancellations?wait=1s"
    assert json.loads(found["body"]) == {"id": "order-17", "partition": 1}
    assert found["status"] == 200
    assert json.loads(found["result"])["outcome"] == "applied"
    assert found["instance"] == made.site.settings.instance_name
    line = next(one for one in logged if "change" in one["event"])
    assert (line["caller"], line["call"]) == (found["caller"], found["call"])
    assert OPERATOR not in str(logged) + str(found)


@pytest.mark.parametrize("route", [one for one in CALLS if one.is_change], ids=lambda one: one.name)
def test_every_change_is_recorded_also_when_it_is_refused(made: MadeUpApi, route: Any) -> None:
    path = route.path.replace("{topic}/{partition}/{offset}", "timer.ingress/0/5")
    path = path.replace("{pattern}", "orders").replace("{id}", "0f1e2d3c4b5a")
    (method,) = route.methods
    code, said = ask(made, VIEWER, f"{method} {path}")
    (found,) = recorded(made)
    assert (code, found["status"], found["caller"]) == (403, 403, "viewer-of-shop")
    assert json.loads(found["result"]) == said


def test_what_reads_or_only_counts_is_not_recorded(made: MadeUpApi) -> None:
    for call in ("GET /pending", "GET /changes", "GET /records?id=known"):
        assert ask(made, OPERATOR, call)[0] == 200
    body = {"topic": "timer.dead-letters", "dry_run": True}
    assert ask(made, OPERATOR, "POST /dead-letters/replays?wait=5s", body)[0] == 200
    assert recorded(made) == []
    assert ask(made, OPERATOR, "POST /dead-letters/replays", {**body, "dry_run": False})[0] == 200
    assert len(recorded(made)) == 1


def test_a_failed_and_a_malformed_change_are_recorded(made: MadeUpApi) -> None:
    made.broker.refusal = Problem(503, "broker", "The broker is away.")
    assert ask(made, OPERATOR, "POST /cancellations", {"id": "a"})[0] == 503
    assert ask(made, OPERATOR, "POST /cancellations", b"\xff" * 5_000)[0] == 400
    failed, malformed = recorded(made)
    assert (failed["status"], "away" in failed["result"]) == (503, True)
    assert (malformed["status"], len(malformed["body"])) == (400, MOST_CHARACTERS)


def test_a_change_holds_although_its_record_cannot_be_written(made: MadeUpApi) -> None:
    for refusal in (Problem(503, "broker", "no"), RuntimeError("a defect")):
        made.broker.change_refusal = refusal
        with structlog.testing.capture_logs() as logged:
            assert ask(made, OPERATOR, "PUT /pauses/orders")[0] == 200
        assert "error" in {one["log_level"] for one in logged}
    assert made.broker.paused == {"orders"}


def test_a_reply_does_not_wait_for_a_record_that_is_late(
    made: MadeUpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "RECORDED_WITHIN_S", 0.0)
    assert ask(made, OPERATOR, "PUT /pauses/orders")[0] == 200


def test_a_change_is_recorded_although_its_sender_has_left(made: MadeUpApi) -> None:
    has_left, pause = threading.Event(), made.broker.pause_ingest

    def pause_late(*, is_paused: bool) -> None:
        has_left.wait(LIMIT_S)
        pause(is_paused=is_paused)

    made.broker.pause_ingest = pause_late  # type: ignore[method-assign]
    head = (
        f"PUT /api/v1/ingest/paused HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n"
    )
    with closing(AdminServer(made.site)) as server:
        with socket.create_connection(("127.0.0.1", server.port), LIMIT_S) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))  # reset it
            sender.sendall(head.encode())
            free = made.site.free_calls
            wait_for(lambda: free._value < CALLS_AT_ONCE, LIMIT_S, "the call to begin")
        connections = server._server.server_state.connections
        wait_for(lambda: not connections, LIMIT_S, "the sender to be gone")
        has_left.set()
        wait_for(lambda: bool(made.broker.changes), LIMIT_S, "the record")
    assert recorded(made)[0]["status"] == 200


def test_the_list_has_the_newest_first(made: MadeUpApi) -> None:
    for name in ("a", "b", "c"):
        ask(made, OPERATOR, f"PUT /pauses/{name}")
    made.broker.changes.insert(1, b"junk")
    code, said = ask(made, OPERATOR, "GET /changes?limit=2")
    assert code == 200
    assert [one["call"][-1] for one in said["changes"]] == ["c", "b"]
    assert ask(made, VIEWER, "GET /changes")[0] == 403


def test_refused_changes_are_bounded_and_their_number_is_told() -> None:
    now_s, broker = [0.0], MadeUpBroker()
    recorder = ChangeRecorder(cast(Any, broker), lambda: now_s[0])
    for _ in range(REFUSED_AT_MOST + 7):
        recorder.record(a_change(403))
    assert len(broker.changes) == REFUSED_AT_MOST
    recorder.record(a_change(200))
    last = read_change(broker.changes[-1])
    assert last is not None
    assert (last.status, last.left_out) == (200, 7)
    now_s[0] += REFUSED_WITHIN_S
    recorder.record(a_change(403))
    assert len(broker.changes) == REFUSED_AT_MOST + 2


@pytest.mark.parametrize(
    "value", [None, b"", b"{}", b"[]", b"\xff", b"{" * 99, b'{"at": "never"}', b"1" * 99_999]
)
def test_foreign_records_of_the_topic_are_passed_over(value: bytes | None) -> None:
    assert read_change(value) is None


def test_a_record_of_a_later_version_is_read() -> None:
    later = {**json.loads(a_change().model_dump_json()), "colour": "blue"}
    assert read_change(json.dumps(later).encode()) == a_change()
