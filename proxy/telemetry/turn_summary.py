"""What a worker's last turns come to: each step's share and length, and the longest turns."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from proxy.telemetry.turn_log import OTHER, STEPS, Rows, Turns

LONGEST: Final = 10
PERCENTILES: Final = {"p50_ms": 50, "p99_ms": 99, "p999_ms": 99.9}

Seconds: TypeAlias = npt.NDArray[np.float64]


def step_seconds(rows: Rows) -> dict[str, Seconds]:
    """By step, in their order and OTHER at last: how long each turn was at it."""
    by_step = {str(step): rows[step].astype(np.float64) for step in STEPS}
    inside = np.sum(list(by_step.values()), axis=0)
    return {**by_step, OTHER: np.maximum(0.0, rows["took_s"] - inside)}


def busy_seconds(rows: Rows) -> Seconds:
    """How long each turn took without the wait for a record that its fetch was told to make."""
    rest = np.minimum(rows["fetch"], rows["may_wait_s"])
    return np.asarray(np.maximum(0.0, rows["took_s"] - rest), np.float64)


def summary(turns: Turns) -> dict[str, Any]:
    """Figures for programs: lengths in ms, times of day as epoch ms, shares of the time covered."""
    rows, by_step, busy_s = turns.rows, step_seconds(turns.rows), busy_seconds(turns.rows)
    covered_s = float(rows["began_s"][-1] + rows["took_s"][-1] - rows["began_s"][0])
    longest = np.argsort(-busy_s, kind="stable")[:LONGEST]
    return {
        "turns": len(rows),
        "seconds": round(covered_s, 3),
        "cpu_share": _share(rows["cpu_s"], covered_s),
        "fetched": int(rows["fetched"].sum()),
        "ended": int(rows["ended"].sum()),
        "doing": {"step": turns.doing, "ms": _ms(turns.doing_s)},
        "busy": _figures(busy_s, covered_s),
        "steps": [
            {"step": step, **_figures(took_s, covered_s)} for step, took_s in by_step.items()
        ],
        "longest": [
            {
                "at": int(rows["began_wall_s"][turn] * 1000),
                "ms": _ms(rows["took_s"][turn]),
                "busy_ms": _ms(busy_s[turn]),
                "cpu_ms": None if turn == len(rows) - 1 else _ms(rows["cpu_s"][turn]),
                "fetched": int(rows["fetched"][turn]),
                "ended": int(rows["ended"][turn]),
                "steps": {step: _ms(took_s[turn]) for step, took_s in by_step.items()},
            }
            for turn in longest
        ],
    }


def columns(rows: Rows) -> dict[str, list[int]]:
    """The turns themselves, for a picture: microseconds, since 1970 in `at_us`, and records."""
    names = ("took", "cpu", "may_wait")
    lengths = {**{name: rows[f"{name}_s"] for name in names}, **step_seconds(rows)}
    return {
        "at_us": _us(rows["began_wall_s"]),
        **{f"{name}_us": _us(seconds) for name, seconds in lengths.items()},
        "fetched": rows["fetched"].tolist(),
        "ended": rows["ended"].tolist(),
    }


def _figures(took_s: Seconds, covered_s: float) -> Mapping[str, float]:
    """Over the turns in which there was any of it."""
    some_s = took_s[took_s > 0]
    seen_s = some_s if len(some_s) else np.zeros(1)
    found = np.percentile(seen_s, list(PERCENTILES.values()))
    return {
        "turns": len(some_s),
        "share": _share(some_s, covered_s),
        **{name: _ms(value) for name, value in zip(PERCENTILES, found, strict=True)},
        "max_ms": _ms(seen_s.max()),
    }


def _share(took_s: npt.NDArray[Any], covered_s: float) -> float:
    return round(float(took_s.sum(dtype=np.float64)) / covered_s, 4) if covered_s else 0.0


def _ms(seconds: float) -> float:
    return round(float(seconds) * 1000, 3)


def _us(seconds: npt.NDArray[np.floating[Any]]) -> list[int]:
    whole: list[int] = np.rint(seconds.astype(np.float64) * 1e6).astype(np.int64).tolist()
    return whole
