"""`POST /moves` moves the records that a dry run has counted, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin import moves as moves_module
from proxy.admin.moves import TOKEN
from proxy.clock import wall_clock_ms
from proxy.dispatch.hops import Moving
from proxy.protocol.body import Headers, Message
from proxy.scheduling.batch import OutgoingRecord
from proxy.scheduling.pending import END, PendingPiece, PendingRecord
from storage.store import Key
from tests.support.simulation import admin_api
from tests.support.simulation.admin_api import INGRESS, MadeUpApi

SOON_MS = 4_102_444_800_000
BODY: dict[str, Any] = {"targets": "orders", "deliver_at": SOON_MS}


def pending(offset: int, due_ms: int = 1_000) -> PendingRecord:
    origin = f"{INGRESS}/0/{offset}"
    return PendingRecord(due_ms, offset, origin, None, due_ms, "orders", 30, "scheduled")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeUpApi:
    """An API whose partition 0 has the records at offsets 1 to 9, and one more that is not yet
    committed. A moved record is at its new offset."""
    api, moved = MadeUpApi(), set[int]()
    records = [pending(offset) for offset in (*range(1, 10), 12)]

    def piece(partition: int, after: Key) -> PendingPiece:
        left = [one for one in records if partition == 0 and one.offset not in moved]
        beyond = [one for one in left if (one.fires_ms, one.offset) > after]
        return PendingPiece(partition, beyond, END)

    def moving(record: Message, deliver_at_ms: int) -> Moving:
        moved.add(record.offset())
        headers: Headers = [("timer-deliver-at", b"%d" % deliver_at_ms)]
        made = OutgoingRecord(INGRESS, None, None, 0, headers, ("moved", record.offset()))
        return Moving("pending", record.offset(), made)

    monkeypatch.setattr(admin_api, "_piece", piece)
    monkeypatch.setattr(admin_api, "_moving", moving)
    return api


def ask(made: MadeUpApi, body: dict[str, Any]) -> tuple[int, Any]:
    return made.ask("/moves", "POST", body)


def offsets(made: MadeUpApi) -> set[int]:
    return {one.ref[1] for one in made.broker.moves if one.ref is not None}


def plan(made: MadeUpApi, body: dict[str, Any]) -> Any:
    code, said = ask(made, {**body, "dry_run": True})
    assert code == 200, said
    return said


def test_what_a_dry_run_has_counted_is_moved_and_nothing_later(made: MadeUpApi) -> None:
    counted = plan(made, BODY)
    assert (counted["records"], counted["cut"], made.broker.moves) == (9, False, [])
    assert counted["sample"][0]["origin"] == f"{INGRESS}/0/1"
    real = {**BODY, "dry_run": False, "confirm": counted["confirm"]}
    code, said = ask(made, real)
    assert (code, said["records"], said["outcomes"]) == (200, 9, {"replaced": 9})
    assert said["confirm"] is None
    assert offsets(made) == set(range(1, 10))
    assert ask(made, real)[1]["records"] == 0, "a repeated call moves nothing"


def test_a_long_list_is_moved_call_by_call(
    made: MadeUpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "MOVED_AT_ONCE", 4)
    monkeypatch.setattr(moves_module, "PIECE", 2)
    confirm, moved, calls = plan(made, BODY)["confirm"], 0, 0
    while confirm is not None:
        said = ask(made, {**BODY, "dry_run": False, "confirm": confirm})[1]
        confirm, moved, calls = said["confirm"], moved + said["records"], calls + 1
    assert (moved, calls) == (9, 3)


def test_beyond_the_bound_the_list_is_cut(made: MadeUpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "MOST_MOVED", 5)
    counted = plan(made, BODY)
    assert (counted["records"], counted["cut"]) == (5, True)
    assert ask(made, {**BODY, "dry_run": False, "confirm": counted["confirm"]})[1]["records"] == 5
    assert offsets(made) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("to", [{"later": "2h"}, {"deliver_at": "now"}])
def test_later_is_added_to_each_due_and_now_is_now(made: MadeUpApi, to: dict[str, str]) -> None:
    body, before_ms = {"targets": "*", **to}, wall_clock_ms()
    ask(made, {**body, "dry_run": False, "confirm": plan(made, body)["confirm"]})
    written = [int(dict(one.headers)["timer-deliver-at"] or b"") for one in made.broker.moves]
    assert len(written) == 9
    if "later" in to:
        assert {*written} == {7_201_000}
    else:
        assert before_ms <= min(written) <= max(written) <= wall_clock_ms()


def test_what_cannot_be_moved_is_counted_by_reason() -> None:
    made, body = MadeUpApi(), {"targets": "*", "later": "1h"}
    counted = plan(made, body)
    assert (counted["records"], counted["left_out"]) == (4, {"half-message": 2})
    said = ask(made, {**body, "dry_run": False, "confirm": counted["confirm"]})[1]
    assert said["left_out"]["ended"] == 4
    made.broker.max_delay_ms = -wall_clock_ms()
    counted = plan(made, body)
    assert counted["left_out"] == {"half-message": 2, "too-far": 4}
    assert (counted["records"], counted["confirm"]) == (0, None)


@pytest.mark.parametrize("deliver_at", ["soon", [1], 2**70, True, "1e3"])
def test_a_time_that_is_none_is_refused_by_the_dry_run(made: MadeUpApi, deliver_at: object) -> None:
    asked = {"targets": "*", "deliver_at": deliver_at, "dry_run": True}
    assert ask(made, asked)[0] in {400, 409}


def test_records_that_end_first_are_missed(made: MadeUpApi) -> None:
    made.broker.outcomes = ["missed"] * 4
    counted = plan(made, BODY)
    said = ask(made, {**BODY, "dry_run": False, "confirm": counted["confirm"]})[1]
    assert (said["records"], said["outcomes"]) == (5, {"missed": 4, "replaced": 5})


@pytest.mark.parametrize(
    ("changed", "code", "error"),
    [
        ({"confirm": "1;0:99;-;1.0.0.0;" + "0" * 32}, 409, "other-dry-run"),
        ({"confirm": "1;" + "0:1," * 1_001}, 409, "other-dry-run"),
        ({"confirm": "; DROP"}, 409, "other-dry-run"),
        ({"confirm": 1}, 400, "bad-request"),
        ({"targets": "*"}, 409, "other-dry-run"),
        ({"deliver_at": SOON_MS + 1}, 409, "other-dry-run"),
        ({"due_to": 5}, 409, "other-dry-run"),
        ({"id_prefix": "a"}, 409, "other-dry-run"),
        ({"later": "1h"}, 400, "bad-request"),
        ({"targets": "a b"}, 400, "bad-request"),
        ({"partition": -1}, 400, "bad-request"),
        ({"deliver_at": "soon"}, 409, "other-dry-run"),
        ({"key": "x"}, 400, "bad-request"),
        ({"dry_run": True}, 400, "bad-request"),
    ],
)
def test_a_hostile_or_foreign_body_moves_nothing(
    made: MadeUpApi, changed: dict[str, Any], code: int, error: str
) -> None:
    confirm = plan(made, BODY)["confirm"]
    got, said = ask(made, {**BODY, "dry_run": False, "confirm": confirm, **changed})
    assert (got, said["error"]) == (code, error)
    assert made.broker.moves == []


def test_a_partition_that_has_moved_away_needs_another_dry_run(
    made: MadeUpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = plan(made, BODY)["confirm"]
    elsewhere = {"targets": "orders", "deliver_at": SOON_MS, "partition": 7}
    assert ask(made, {**elsewhere, "dry_run": True})[1]["error"] == "not-served-here"
    monkeypatch.setattr(moves_module, "_served", lambda *_: {1: 10})
    assert ask(made, {**BODY, "dry_run": False, "confirm": confirm})[1]["error"] == "moved-away"


def test_while_the_ingest_is_paused_nothing_is_moved(made: MadeUpApi) -> None:
    made.broker.is_ingest_paused = True
    assert ask(made, {**BODY, "dry_run": True})[1]["error"] == "ingest-paused"


def test_a_token_is_bounded(made: MadeUpApi) -> None:
    assert TOKEN.fullmatch(plan(made, BODY)["confirm"])
    assert TOKEN.fullmatch("1;0:1" + ",0:1" * 1_001 + ";-;1.0.0.0;" + "0" * 32) is None
