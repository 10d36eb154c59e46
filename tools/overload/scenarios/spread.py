"""Shared parts of scenarios whose records are due within a minute."""

from __future__ import annotations

import time

from tools.benchmarks.loads import Load
from tools.overload.ledger import Account
from tools.overload.stage import Figures, Stage

LEAD_S = 5


def send_spread(stage: Stage, phase: int = 0) -> Load:
    began_ms = int((time.time() + LEAD_S) * 1000)
    stage.timeline.mark("first due", stage.timeline.second_of(began_ms))
    load = stage.load(phase, (0, stage.sizes.spread_s * 1000), began_ms)
    stage.send(phase, load)
    return load


def spread_figures(account: Account, phase: str = "scattered") -> Figures:
    late = account.came[phase].late
    return {
        "lateness p50 / p99, ms": f"{late.p50_ms:g} / {late.p99_ms:g}",
        "longest lateness, s": round(late.max_ms / 1000, 2),
    }
