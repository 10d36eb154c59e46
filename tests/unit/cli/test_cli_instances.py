"""`instances`: the state of each instance, and totals only if a partition is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.cli.admin_port import Instance

Call = Callable[..., tuple[int, str, str]]
ONE = {
    "name": "one",
    "version": "0.1.0",
    "ready": True,
    "reason": "",
    "disk_full": False,
    "pending": 7,
    "overdue": 1,
    "oldest_overdue_s": 2.0,
    "shards": [{"partition": 0}],
}
GROUP = {
    "complete": True,
    "unanswered": [],
    "pending": 7,
    "overdue": 1,
    "partitions": [0],
    "partitions_missing": [],
}


@pytest.mark.parametrize(
    ("one", "group", "code", "shown"),
    [
        ({}, {}, 0, ["ready", "1 of 1 instance answered: 7 records pending, 1 overdue."]),
        ({"disk_full": True}, {}, 0, ["disk full: reads no new records"]),
        (
            {"ready": False, "reason": "the broker is away", "disk_full": True, "shards": []},
            {"complete": False, "pending": 0, "partitions": [], "partitions_missing": None},
            1,
            ["the broker is away", "answered: No partition has caught up", "broker is silent"],
        ),
    ],
)
def test_states_and_totals(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    one: dict[str, Any],
    group: dict[str, Any],
    code: int,
    shown: list[str],
) -> None:
    said = {**GROUP, **group, "instances": [{**ONE, **one}]}
    monkeypatch.setattr(Instance, "ask", lambda *_: said)
    ended, out, _ = call("instances")
    assert ended == code
    assert [text for text in shown if text not in out] == []
    assert ("records pending" in out) is bool(said["partitions"])
