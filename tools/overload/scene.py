"""Requirements of a scenario, and the check of its disk space."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.benchmarks.errors import BenchmarkError
from tools.overload.ledger import Phase

GB: Final = 1_000_000_000
SPARE_BYTES: Final = 3 * GB
"""Disk space for other programs and for errors of the estimate."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Topics, broker and disk space of a scenario. `phases` are the parts of the load in order.
    `disk_bytes` is the estimated peak of the broker's log and the proxy's folder. `queued_kbytes`
    is the reader's prefetch."""

    phases: list[Phase]
    disk_bytes: int
    value_bytes: int = 200
    partitions: int = 4
    targets: int = 1
    target_partitions: int = 4
    topic_config: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 1024
    queued_kbytes: int = 262_144


def refuse_without_room(scene: Scene, folder: Path, name: str) -> None:
    """Raise BenchmarkError if the scenario could fill the disk."""
    free_bytes = shutil.disk_usage(folder).free
    needed_bytes = scene.disk_bytes + SPARE_BYTES
    if free_bytes < needed_bytes:
        raise BenchmarkError(
            f"`{name}` needs about {needed_bytes / GB:.0f} GB below {folder}, where "
            f"{free_bytes / GB:.0f} GB are free. Name another folder (--folder), or reduce the "
            "sizes (--scale)."
        )
