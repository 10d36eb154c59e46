"""Takeovers of shards, read from a proxy's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

TAKEN_OVER: Final = "shard taken over"
SESSION_LOST: Final = "session lost"
PUT_ASIDE: Final = "put aside"


class TakenOver(NamedTuple):
    shards: int
    local_pending: int
    put_aside: int
    sessions_lost: int


def taken_over_since(log: str) -> TakenOver:
    lines = list(_lines(log))
    shards = [line for line in lines if line.get("event") == TAKEN_OVER]
    events = [str(line.get("event")) for line in lines]
    return TakenOver(
        shards=len(shards),
        local_pending=sum(int(line["local_pending"]) for line in shards),
        put_aside=sum(PUT_ASIDE in event for event in events),
        sessions_lost=sum(event.startswith(SESSION_LOST) for event in events),
    )


def _lines(log: str) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:  # incomplete, or not JSON
            continue
        if isinstance(found, dict):
            yield found
