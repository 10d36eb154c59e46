"""Plots of lateness and memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.time_plots import MIB, lateness_lines, save

OF_PROXIES, OF_BROKERS = "#c44e52", "#8c8c8c"


def draw(figures: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    said = f"{figures['records_sent']:,} records written, {figures['faults']} faults"
    above.set_title(f"{figures['minutes']:g} minutes of faults, seed {figures['seed']}: {said}")
    _draw_lateness(above, figures)
    _draw_memory(below, figures)
    _mark_faults(above, figures)
    save(figure, path, "soak")


def _draw_lateness(axes: Axes, figures: dict[str, Any]) -> None:
    rows = figures["lateness"]
    lateness_lines(axes, [row[0] / 60 for row in rows], [row[1:] for row in rows])
    axes.set_ylabel("lateness in each 10 s, seconds")


def _mark_faults(axes: Axes, figures: dict[str, Any]) -> None:
    for lane, colour, at in (("proxies", OF_PROXIES, 0.02), ("brokers", OF_BROKERS, 0.98)):
        began = [one["began_s"] / 60 for one in figures["done"] if one["lane"] == lane]
        heights = [at] * len(began)
        axes.plot(
            began,
            heights,
            "|",
            color=colour,
            transform=axes.get_xaxis_transform(),
            label=f"a fault of {lane}",
        )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _draw_memory(axes: Axes, figures: dict[str, Any]) -> None:
    for proxy in sorted({row[1] for row in figures["resident"]}):
        rows = [row for row in figures["resident"] if row[1] == proxy]
        minutes, sizes = [row[0] / 60 for row in rows], [row[2] / MIB for row in rows]
        axes.plot(minutes, sizes, label=f"proxy {proxy}, with its workers", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("resident memory, MiB")
    axes.set_xlabel("minutes")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
