"""Pending records listed over fake workers: two partitions with three records each."""

from typing import Any

import pytest

from proxy.admin.queries import NoAnswer, ScanPending
from proxy.scheduling.pending import Sought
from tests.support.simulation.admin_api import FAR_MS, INGRESS, MadeUpApi


def listed(made: MadeUpApi, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        code, said = made.ask(f"/pending/records?limit={limit}{cursor}")
        assert code == 200
        assert len(said["records"]) <= limit
        found += said["records"]
        if said["cursor"] is None:
            return found
        cursor = f"&cursor={said['cursor']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 100])
def test_pages_hold_each_record_once_in_the_order_of_firing(limit: int) -> None:
    places = ["0/1", "1/1", "0/2", "1/2", "0/3", "1/3"]
    assert [one["origin"] for one in listed(MadeUpApi(), limit)] == [
        f"{INGRESS}/{place}" for place in places
    ]


def test_a_record_is_shown_with_what_it_waits_for() -> None:
    code, said = MadeUpApi().ask("/pending/records")
    assert (code, said["cursor"], said["partitions"]) == (200, None, [0, 1, 2])
    assert said["records"][::2] == [
        {
            "origin": f"{INGRESS}/0/1",
            "id": "a",
            "due": 1_000,
            "fires": 1_000,
            "target": "orders",
            "bytes": 30,
            "why": "overdue",
            "attempt": 0,
            "reason": None,
        },
        {
            "origin": f"{INGRESS}/0/2",
            "id": None,
            "due": 900,
            "fires": FAR_MS,
            "target": "bills",
            "bytes": 40,
            "why": "rate-limited",
            "attempt": 0,
            "reason": None,
        },
        {
            "origin": f"{INGRESS}/0/3",
            "id": "h",
            "due": 7,
            "fires": None,
            "target": "orders",
            "bytes": None,
            "why": "undecided",
            "attempt": 0,
            "reason": None,
        },
    ]


def test_what_is_held_back_while_its_target_is_paused_says_so() -> None:
    made = MadeUpApi()
    made.ask("/pauses/bill*", "PUT")
    _, said = made.ask("/pending/records")
    assert [one["why"] for one in said["records"]][2:4] == ["paused", "paused"]


def test_filters_reach_the_workers_as_they_were_asked_for() -> None:
    made = MadeUpApi()
    made.ask(
        "/pending/records?target=orders-*&due_from=5&due_to=1970-01-01T00:00:09Z&id_prefix=%C3%A9"
    )
    (query,) = made.workers.asked
    assert isinstance(query, ScanPending)
    assert query.sought == Sought("orders-*", 5, 9_000, "é".encode())
    assert query.places[0] == (0, (4, 2**63 - 1))


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=many",
        "target=a/b",
        "due_from=soon",
        "due_to=2026-01-01",
        "id_prefix=" + "x" * 257,
        "cursor=",
        "cursor=1.2.3",
        "cursor=1.-1.0.0",
        "cursor=2.1.1.1",
        "cursor=1.9999999999999999999.0.0",
        "order=due",
    ],
)
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    code, said = MadeUpApi().ask(f"/pending/records?{query}")
    assert (code, said["error"]) == (400, "bad-request")


def test_a_worker_that_does_not_answer_is_said_to_be_silent() -> None:
    made = MadeUpApi()
    made.workers.refusal = NoAnswer()
    assert made.ask("/pending/records")[0] == 503
