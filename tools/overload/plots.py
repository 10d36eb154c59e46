"""Plots of memory and lateness of all scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.time_plots import MIB, lateness_lines, save

ROW_INCHES: Final = 2.6
MARKED: Final = "#8c8c8c"


def draw(scenarios: Mapping[str, dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(12, ROW_INCHES * len(scenarios)), layout="constrained")
    rows = figure.subplots(len(scenarios), 2, squeeze=False)
    for (left, right), (name, found) in zip(rows, scenarios.items(), strict=True):
        _draw_memory(left, name, found)
        _draw_lateness(right, found)
        right.set_xlim(left.get_xlim())
    rows[-1][0].set_xlabel("seconds")
    rows[-1][1].set_xlabel("seconds")
    save(figure, path, "overload")


def _draw_memory(axes: Axes, name: str, found: dict[str, Any]) -> None:
    """Draw memory. The line has a gap while no process runs."""
    for column, label in ((1, "anonymous"), (2, "pages of files")):
        at_s, sizes = _with_gaps([(row[0], row[column] / MIB) for row in found["samples"]])
        axes.plot(at_s, sizes, label=label, linewidth=1)
    records = sum(found["records"].values())
    axes.set_title(f"{name}: {records:,} records", loc="left", fontsize="medium")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("resident, MiB")
    axes.legend(loc="best", fontsize="x-small")
    axes.grid(alpha=0.3)
    for at, what in found["marks"]:
        axes.axvline(at, color=MARKED, linewidth=0.6, linestyle=":")
        axes.annotate(
            what,
            (at, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            verticalalignment="top",
            horizontalalignment="right",
            fontsize=6,
        )


def _draw_lateness(axes: Axes, found: dict[str, Any]) -> None:
    rows = found["lateness"]
    lateness_lines(axes, [row[0] for row in rows], [row[2:] for row in rows])
    axes.set_ylabel("lateness, seconds")
    if rows:
        axes.legend(loc="best", fontsize="x-small")


def _with_gaps(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    at_s: list[float] = []
    values: list[float] = []
    for moment_s, value in points:
        if at_s and moment_s - at_s[-1] > 3:
            at_s.append(moment_s)
            values.append(float("nan"))
        at_s.append(moment_s)
        values.append(value)
    return at_s, values
