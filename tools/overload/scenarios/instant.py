"""Scenario instant: millions of records due at the same millisecond."""

from __future__ import annotations

import time

from tools.overload.ledger import Account, Phase
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.stage import Figures, Stage

LEAST_LEAD_S = 10
WRITTEN_PER_S = 20_000
"""Slowest expected rate. Even at this rate, all records are in the schedule before they are due."""
BYTES_PER_RECORD = 1_000


def scene(sizes: Sizes) -> Scene:
    records = sizes.instant_records
    return Scene([Phase("instant", records)], records * BYTES_PER_RECORD)


def act(stage: Stage) -> Figures:
    count = stage.sizes.instant_records
    lead_s = LEAST_LEAD_S + count / WRITTEN_PER_S
    due_ms = int((time.time() + lead_s) * 1000)
    stage.timeline.mark("due", stage.timeline.second_of(due_ms))
    stage.send(0, stage.load(0, (0, 0), due_ms))
    stage.await_ingested()
    spare_s = round(due_ms / 1000 - time.time(), 1)
    stage.await_received(count, due_ms)
    return {"due_ms": due_ms, "in the schedule before the instant, s": spare_s}


def figures(acted: Figures, account: Account) -> Figures:
    came, due_ms = account.came["instant"], acted.pop("due_ms")
    if came.first_ms is None or came.last_ms is None:
        return acted
    last_s = (came.last_ms - due_ms) / 1000
    return {
        **acted,
        "first delivery, ms": round(came.first_ms - due_ms),
        "last delivery, s": round(last_s, 1),
        "records/s": round(came.late.records / max(last_s, 0.001)),
    }
