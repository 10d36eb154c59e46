"""Scenario partitions: one worker with many ingress partitions. In the middle of the deliveries it
is killed and started again."""

from __future__ import annotations

import time

from tools.overload.ledger import Account, Phase
from tools.overload.scenarios.spread import send_spread, spread_figures
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.stage import Figures, Stage

BYTES_PER_RECORD = 1_000
BYTES_PER_PARTITION = 2_000_000


def scene(sizes: Sizes) -> Scene:
    records = sizes.partitions_records
    disk_bytes = records * BYTES_PER_RECORD + sizes.partitions * BYTES_PER_PARTITION
    return Scene(
        [Phase("scattered", records)], disk_bytes, partitions=sizes.partitions, heap_mb=2_048
    )


def act(stage: Stage) -> Figures:
    load = send_spread(stage)
    middle_s = (load.anchor_ms or 0) / 1000 + stage.sizes.spread_s / 2
    time.sleep(max(0.0, middle_s - time.time()))
    stage.kill()
    ready_s = stage.start()
    stage.await_received(load.count)
    return {
        "ingress partitions": stage.scene.partitions,
        "ready after SIGKILL, s": ready_s,
        "clean stop, s": stage.stop(),
    }


def figures(acted: Figures, account: Account) -> Figures:
    return acted | spread_figures(account)
