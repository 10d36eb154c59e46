"""The judge of all runs knows the effect of a purge."""

from __future__ import annotations

import json

import pytest

from tests.support.oracle.asked import Rules
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.conservation import wrong_ends
from tests.support.oracle.ends import Ends
from tests.support.records import Incoming

ORDER = {"timer-topic": "orders", "timer-deliver-at": "50"}
NAMED = {**ORDER, "timer-id": "a"}
PURGE = {"timer-purge": "ord*"}
HALF = {**NAMED, "timer-transaction": "prepare"}
COMMIT = {"timer-id": "a", "timer-transaction": "commit"}
HOP = {**ORDER, "timer-hop-from": "0", "timer-first-origin": "in/0/0"}
HOP_A = {**HOP, "timer-id": "a"}
CANCEL = {"timer-cancel": "a"}
RECALL = {"timer-recall": "in/0/0"}
WRITTEN_MS, PURGED_MS = 0, 100
Asked = dict[str, str]


def wrong(log: list[tuple[Asked, str]]) -> list[str]:
    """Judge a log and the end of each record. An end is an outcome, with detail or next offset
    after a colon, or `delivered` with its time."""
    ends = Ends()
    for offset, (asked, end) in enumerate(log):
        what, _, more = end.partition(":")
        headers = [(name, value.encode()) for name, value in asked.items()]
        ends.ingress[f"in/0/{offset}"] = Incoming(0, offset, b"k", b"", [*headers], WRITTEN_MS)
        if what == "delivered":
            stamps = [("timer-origin", b"in/0/%d" % offset), ("timer-due", b"50")]
            record = Incoming(0, offset, b"k", b"", [*stamps], int(more))
            ends.add_targets([Placed("orders", record)])
        else:
            ends.add_outcomes([_outcome(offset, asked, what, more)])
    return wrong_ends(ends, Rules(transaction_ms=0))


def _outcome(offset: int, asked: Asked, what: str, more: str) -> Incoming:
    said = {
        "origin": f"in/0/{offset}",
        "outcome": what,
        "due": None if what in ("applied", "missed") else 50,
        "id": asked.get("timer-id", asked.get("timer-cancel")),
        "detail": f"purged by in/0/{more}" if more.isdigit() else more,
    }
    if what == "replaced":
        said |= {"detail": "", "next_origin": f"in/0/{more}"}
    key, value = str(said["origin"]).encode(), json.dumps(said).encode()
    return Incoming(0, offset, key, value, [], PURGED_MS)


SOUND = {
    "what waits is purged": [(ORDER, "cancelled:1"), (PURGE, "applied")],
    "or had been delivered": [(ORDER, "delivered:100"), (PURGE, "applied")],
    "what comes later is not": [(PURGE, "applied"), (ORDER, "delivered:200")],
    "nor what waits for others": [(ORDER, "delivered:200"), ({"timer-purge": "x*"}, "applied")],
    "nor what is due later": [
        (ORDER, "delivered:200"),
        ({**PURGE, "timer-purge-to": "49"}, "applied"),
    ],
    "the first purge is named": [(ORDER, "cancelled:1"), (PURGE, "applied"), (PURGE, "applied")],
    "half messages are not purged": [
        (HALF, "delivered:200"),
        (PURGE, "applied"),
        (COMMIT, "applied"),
    ],
    "but committed ones are": [(HALF, "cancelled:2"), (COMMIT, "applied"), (PURGE, "applied")],
    "in mid-hop": [(NAMED, "rolled"), (PURGE, "applied"), (HOP_A, "cancelled:1")],
    "a cancel comes too late": [(NAMED, "cancelled:1"), (PURGE, "applied"), (CANCEL, "missed")],
    "a recall comes too late": [(NAMED, "cancelled:1"), (PURGE, "applied"), (RECALL, "missed")],
    "another takes the id": [
        (NAMED, "cancelled:1"),
        (PURGE, "applied"),
        (NAMED, "cancelled:cancelled"),
        (CANCEL, "applied"),
    ],
    "a purge comes too late": [(NAMED, "cancelled:"), (CANCEL, "applied"), (PURGE, "applied")],
    "either in mid-hop": [
        (NAMED, "rolled"),
        (CANCEL, "applied"),
        (PURGE, "applied"),
        (HOP_A, "cancelled:2"),
    ],
}
FAULTS = {
    "the purge missed": [(PURGE, "missed")],
    "not named": [(ORDER, "cancelled:"), (PURGE, "applied")],
    "the second is named": [(ORDER, "cancelled:2"), (PURGE, "applied"), (PURGE, "applied")],
    "came later": [(PURGE, "applied"), (ORDER, "cancelled:0")],
    "for another target": [(ORDER, "cancelled:1"), ({"timer-purge": "bills"}, "applied")],
    "due before": [(ORDER, "cancelled:1"), ({**PURGE, "timer-purge-from": "51"}, "applied")],
    "delivered later": [(ORDER, "delivered:101"), (PURGE, "applied")],
    "undecided": [(HALF, "cancelled:1"), (PURGE, "applied"), (COMMIT, "missed")],
    "delivered after the hop": [(ORDER, "rolled"), (PURGE, "applied"), (HOP, "delivered:100")],
    "cancelled before": [
        (NAMED, "cancelled:2"),
        (CANCEL, "applied"),
        (PURGE, "applied"),
    ],
    "a cancel found it": [(NAMED, "cancelled:1"), (PURGE, "applied"), (CANCEL, "applied")],
    "a recall found it": [(ORDER, "cancelled:1"), (PURGE, "applied"), (RECALL, "applied")],
    "it was replaced": [
        (NAMED, "replaced:2"),
        (PURGE, "applied"),
        (NAMED, "delivered:200"),
    ],
}


@pytest.mark.parametrize("story", SOUND)
def test_a_purge_ends_what_it_means_and_no_more(story: str) -> None:
    assert wrong(SOUND[story]) == []


@pytest.mark.parametrize("story", FAULTS)
def test_what_a_purge_cannot_have_done_is_found(story: str) -> None:
    assert wrong(FAULTS[story]) != []
