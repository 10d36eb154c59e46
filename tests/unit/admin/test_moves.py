"""`PATCH /records/<origin>` moves a pending record to another time."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin import records
from proxy.dispatch.hops import Moving
from proxy.protocol.body import Message
from tests.support.simulation import admin_api
from tests.support.simulation.admin_api import MadeUpApi

SOON_MS = 4_102_444_800_000
ORIGIN = "/records/timer.ingress/2"


def patch(made: MadeUpApi, offset: int, deliver_at: object, query: str = "") -> tuple[int, Any]:
    return made.ask(f"{ORIGIN}/{offset}{query}", "PATCH", {"deliver_at": deliver_at})


@pytest.mark.parametrize("deliver_at", [SOON_MS, "2100-01-01T00:00:00Z"])
def test_what_waits_is_written_with_its_new_time(deliver_at: object) -> None:
    made = MadeUpApi()
    said = {"moves": "timer.ingress/2/5", "origin": "timer.ingress/2/9"}
    assert patch(made, 5, deliver_at) == (202, {**said, "outcome": None, "detail": None})
    told = {**said, "outcome": "replaced", "detail": "moved"}
    assert patch(made, 5, deliver_at, "?wait=5s") == (200, told)
    (record, _) = made.broker.moves
    assert (record.partition, record.headers) == (2, [("timer-deliver-at", b"%d" % SOON_MS)])


def test_what_was_rewritten_is_found_where_it_is_now() -> None:
    made = MadeUpApi()
    assert patch(made, 4, SOON_MS)[0] == 202
    assert [record.ref for record in made.broker.moves] == [("moved", 5)]


def test_what_was_just_being_rewritten_is_tried_again() -> None:
    made = MadeUpApi()
    made.broker.outcomes = ["missed", "missed", "replaced"]
    assert patch(made, 5, SOON_MS, "?wait=5s")[1]["outcome"] == "replaced"
    assert len(made.broker.moves) == 3


def test_what_misses_again_and_again_says_so() -> None:
    made = MadeUpApi()
    made.broker.outcomes = ["missed"] * 9
    assert patch(made, 5, SOON_MS, "?wait=5s")[1]["outcome"] == "missed"


def test_what_ended_before_the_move_of_it_was_read_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, found = MadeUpApi(), admin_api._moving
    made.broker.outcomes = ["missed"]

    def moving(record: Message, deliver_at_ms: int) -> Moving:
        return Moving("ended", 5) if made.broker.moves else found(record, deliver_at_ms)

    monkeypatch.setattr(admin_api, "_moving", moving)
    status, said = patch(made, 5, SOON_MS, "?wait=5s")
    assert (status, said["outcome"]) == (200, "missed")


def test_what_was_only_just_read_is_moved_once_that_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, looks = MadeUpApi(), iter([Moving("not-committed", 5)] * 2)
    found = admin_api._moving
    monkeypatch.setattr(admin_api, "_moving", lambda *asked: next(looks, None) or found(*asked))
    monkeypatch.setattr(records, "LOOK_EVERY_S", 0)
    assert patch(made, 5, SOON_MS)[0] == 202
    assert [record.ref for record in made.broker.moves] == [("moved", 5)]


@pytest.mark.parametrize(
    ("offset", "deliver_at", "status", "code", "why"),
    [
        (7, SOON_MS, 409, "ended", "The record has ended"),
        (6, SOON_MS, 409, "half-message", "Commit it"),
        (8, SOON_MS, 409, "not-committed", "not committed yet"),
        (0, SOON_MS, 404, "not-found", "pending list"),
        (5, "tomorrow", 409, "no-such-time", "tomorrow"),
        (5, -1, 409, "no-such-time", "-1"),
        (5, 9 * 10**14, 409, "too-far", "max_delay"),
        (5, None, 400, "bad-request", "deliver_at"),
        (99, SOON_MS, 404, "not-read-yet", "read only up to"),
    ],
)
def test_what_cannot_be_moved_is_refused_and_nothing_written(
    monkeypatch: pytest.MonkeyPatch,
    offset: int,
    deliver_at: object,
    status: int,
    code: str,
    why: str,
) -> None:
    monkeypatch.setattr(records, "COMMITTED_WITHIN_S", 0)
    made = MadeUpApi()
    refused, said = patch(made, offset, deliver_at)
    assert (refused, said["error"]) == (status, code)
    assert why in str(said["detail"])
    assert made.broker.moves == []
