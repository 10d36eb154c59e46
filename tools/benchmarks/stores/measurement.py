"""Measurement of one kind of store in one scenario, with one body size."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.benchmarks import page_cache
from tools.benchmarks.processes import Job
from tools.benchmarks.stores.entries import Wanted
from tools.benchmarks.stores.kinds import Kind
from tools.benchmarks.stores.phases import Order, drain, fill
from tools.benchmarks.stores.scenarios import Scenario
from tools.benchmarks.turns import Figures

PATIENCE_S = 1_800


@dataclass(frozen=True, slots=True)
class Setup:
    """Common settings of a table. `scale` multiplies all record counts."""

    scale: float
    targets: int


def measure(scenario: Scenario, kind: Kind, body_bytes: int, setup: Setup, root: Path) -> Figures:
    records = scenario.records_of(body_bytes, setup.scale)
    wanted = Wanted(records, body_bytes, scenario.delay_ms, setup.targets, kind.has_stubs)
    with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as home:
        order = Order(
            store=kind.store,
            folder=Path(home) / "shard",
            wanted=wanted,
            step_ms=scenario.step_ms,
            drained=scenario.drained_of(records),
            cancelled=records // 2 if scenario.is_cancelled else 0,
        )
        with Job(fill, order) as filling:
            filled = filling.result(PATIENCE_S)
        if scenario.is_cold:
            page_cache.forget(order.folder)
        with Job(drain, order) as draining:
            drained = draining.result(PATIENCE_S)
    figures = {"records": records, **filled, **drained, **_together(filled, drained, wanted)}
    return {name: round(value, 3) for name, value in figures.items()}


def _together(filled: Figures, drained: Figures, wanted: Wanted) -> Figures:
    """Return the figures of both phases together. `written_per_put` divides the written bytes by
    the bytes of all bodies, also if only stubs are stored."""
    written_bytes = filled["append_written_bytes"] + drained["due_written_bytes"]
    return {
        "life_cpu_us": filled["append_cpu_us"] + drained["due_cpu_us"],
        "written_per_put": written_bytes / (wanted.records * wanted.body_bytes),
        "memory_mb": max(filled["append_memory_mb"], drained["due_memory_mb"]),
    }
