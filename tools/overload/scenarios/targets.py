"""Scenario targets: records for thousands of topics, one topic after the other."""

from __future__ import annotations

from tools.overload.ledger import Account, Phase
from tools.overload.scenarios.spread import send_spread, spread_figures
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.stage import Figures, Stage

BYTES_PER_RECORD = 1_000
BYTES_PER_TARGET = 100_000


def scene(sizes: Sizes) -> Scene:
    """Return a scene with a larger broker heap, because each partition needs heap."""
    records, targets = sizes.targets_records, sizes.targets
    disk_bytes = records * BYTES_PER_RECORD + targets * BYTES_PER_TARGET
    return Scene(
        [Phase("scattered", records)],
        disk_bytes,
        targets=targets,
        target_partitions=1,
        heap_mb=3_072,
    )


def act(stage: Stage) -> Figures:
    load = send_spread(stage)
    stage.await_received(load.count)
    return {"targets": stage.sizes.targets}


def figures(acted: Figures, account: Account) -> Figures:
    return acted | spread_figures(account)
