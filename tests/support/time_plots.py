"""Plots over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MIB: Final = 1 << 20
DPI: Final = 120
LABELS: Final = ("p50", "p99", "longest")


def lateness_lines(axes: Axes, times: Sequence[float], rows_ms: Sequence[Sequence[float]]) -> None:
    """Draw p50, p99 and longest lateness in seconds on a logarithmic axis. Rows are in ms."""
    for column, label in enumerate(LABELS):
        seconds = [max(row[column], 1) / 1000 for row in rows_ms]
        axes.plot(times, seconds, label=label, linewidth=1, marker=".", markersize=2)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)


def save(figure: Figure, path: Path, salt: str) -> None:
    """Save the figure as PNG or SVG, as the path's suffix says. Equal figures make equal files."""
    mpl.rcParams["svg.hashsalt"] = salt
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=DPI, metadata=metadata)
