"""The purge call with two fake workers and three partitions."""

from __future__ import annotations

import pytest

from proxy.protocol.parsed import Purge
from proxy.protocol.times import LATEST_MS
from tests.support.simulation.admin_api import MadeUpApi


def purge(api: MadeUpApi, **body: object) -> tuple[int, dict[str, object]]:
    return api.ask("/purges", "POST", body)


def test_a_dry_run_counts_by_target_and_writes_nothing() -> None:
    api = MadeUpApi()
    code, reply = purge(api, targets="o*", dry_run=True)
    assert (code, reply["records"], reply["counted_all"]) == (200, 4, True)
    assert reply["partitions"] == [0, 1, 2]
    assert api.broker.purges == []


def test_between_two_dues_records_are_counted_one_by_one_by_what_they_asked_for() -> None:
    api = MadeUpApi()
    code, reply = purge(api, targets="*", due_from=900, due_to=999, dry_run=True)
    assert (code, reply["records"]) == (200, 2)
    code, reply = purge(api, targets="orders", due_to=1_000, dry_run=True)
    assert (code, reply["records"]) == (200, 2)


def test_a_purge_is_written_and_says_where_it_lies() -> None:
    api = MadeUpApi()
    code, reply = purge(api, targets="orders", due_from=5, dry_run=False)
    assert (code, reply["applied"]) == (200, True)
    assert reply["purges"] == [f"timer.ingress/{number}/9" for number in range(3)]
    assert api.broker.purges == [Purge("orders", 5, LATEST_MS)]


def test_times_with_nothing_between_them_are_refused() -> None:
    code, reply = purge(MadeUpApi(), targets="orders", due_from=2, due_to=1, dry_run=False)
    assert (code, reply["error"]) == (409, "nothing-between")


def test_what_is_not_waited_for_is_not_said_to_count() -> None:
    asked = {"targets": "orders", "dry_run": False}
    code, reply = MadeUpApi().ask("/purges?wait=0s", "POST", asked)
    assert (code, reply["applied"]) == (202, False)


@pytest.mark.parametrize(
    "body",
    [
        {"targets": "orders"},
        {"dry_run": True},
        {"targets": "no topic!", "dry_run": True},
        {"targets": "", "dry_run": True},
        {"targets": "orders", "dry_run": "yes"},
        {"targets": "orders", "dry_run": True, "due_from": -1},
        {"targets": "orders", "dry_run": True, "due_to": 10**15},
        {"targets": "orders", "dry_run": True, "due_to": "soon"},
        {"targets": "orders", "dry_run": True, "due": 5},
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(body: dict[str, object]) -> None:
    api = MadeUpApi()
    code, reply = purge(api, **body)
    assert (code, reply["error"]) == (400, "bad-request")
    assert api.broker.purges == []
