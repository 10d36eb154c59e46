"""Scenario large: records of a mebibyte, half due at one instant, half within a minute."""

from __future__ import annotations

import time

from tools.overload.ledger import Account, Phase
from tools.overload.scenarios.spread import spread_figures
from tools.overload.scene import Scene
from tools.overload.sizes import MIB, Sizes
from tools.overload.stage import Figures, Stage

INSTANT, SCATTERED = 0, 1
LEAST_LEAD_S = 10
WRITTEN_BYTES_PER_S = 15 * MIB
COPIES = 3.2
"""Copies of a record on disk, in the ingress, in the proxy's folder and in the target, with a
little room for other files."""
TAKES = str(2 * MIB)


def scene(sizes: Sizes) -> Scene:
    """Return topics for large records, and a reader with a small prefetch."""
    half = sizes.large_records // 2
    return Scene(
        [Phase("instant", half), Phase("scattered", sizes.large_records - half)],
        int(sizes.large_records * sizes.large_value_bytes * COPIES),
        value_bytes=sizes.large_value_bytes,
        topic_config={"max.message.bytes": TAKES},
        queued_kbytes=65_536,
    )


def act(stage: Stage) -> Figures:
    sizes = stage.sizes
    lead_s = LEAST_LEAD_S + sizes.large_records * sizes.large_value_bytes / WRITTEN_BYTES_PER_S
    due_ms = int((time.time() + lead_s) * 1000)
    stage.timeline.mark("due", stage.timeline.second_of(due_ms))
    stage.send(INSTANT, stage.load(INSTANT, (0, 0), due_ms))
    stage.send(SCATTERED, stage.load(SCATTERED, (0, sizes.spread_s * 1000), due_ms))
    stage.await_ingested()
    spare_s = round(due_ms / 1000 - time.time(), 1)
    stage.await_received(sizes.large_records, due_ms)
    return {"in the schedule before the instant, s": spare_s}


def figures(acted: Figures, account: Account) -> Figures:
    instant = account.came["instant"].late
    last_s = max(instant.max_ms / 1000, 0.001)
    rate = round(instant.records * MIB / last_s / 1e6)
    of_instant = {"last of the instant, s": round(last_s, 1), "MB/s of the instant": rate}
    return acted | of_instant | spread_figures(account)
