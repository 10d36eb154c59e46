"""Plot of the scenario *overload*: rates, lateness and memory by second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from tests.support.time_plots import save
from tools.benchmarks.by_second import Second
from tools.benchmarks.scenarios.overload import Overload
from tools.benchmarks.verdict import Lateness

SENT: Final = "#4c4c4c"
DELIVERED: Final = "#2a7f62"
SHORT: Final = "#c44e52"
LONG: Final = "#3b6fb6"
SHADE: Final = "#e9e4d8"


def draw(overload: Overload, path: Path) -> None:
    figure = Figure(figsize=(9, 8), layout="constrained")
    rates, lateness, memory = figure.subplots(3, 1, sharex=True, height_ratios=(3, 4, 2))
    figure.suptitle(
        f"{overload.stream.offered_per_s:,.0f} records/s for {overload.overload_s:g} s, "
        f"{overload.offered_against_held:.0%} of the rate held"
    )
    _draw_rates(rates, overload)
    _draw_lateness(lateness, overload)
    _draw_memory(memory, overload.seconds)
    for axes in (rates, lateness, memory):
        axes.axvspan(0, overload.overload_s, color=SHADE, zorder=0, linewidth=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    memory.set_xlabel("seconds from the start of the overload (shaded)")
    save(figure, path, "overload")


def _draw_rates(axes: Axes, overload: Overload) -> None:
    at_s = _middles(overload.seconds)
    sent = [second.sent / 1000 for second in overload.seconds]
    delivered = [second.delivered / 1000 for second in overload.seconds]
    axes.plot(at_s, sent, color=SENT, label="sent")
    axes.plot(at_s, delivered, color=DELIVERED, label="delivered")
    axes.axhline(overload.held_per_s / 1000, color=SENT, linestyle=":", linewidth=1, label="held")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("1,000 records/s")
    _legend_above(axes)


def _draw_lateness(axes: Axes, overload: Overload) -> None:
    """Draw lateness by the second of the due time. One line shows it by the second of arrival."""
    at_s = _middles(overload.seconds)
    for name, colour, late in (
        ("short delays", SHORT, [one.short for one in overload.seconds]),
        ("long delays", LONG, [one.long for one in overload.seconds]),
    ):
        p50_s, p99_s = _in_seconds(late)
        axes.plot(at_s, p99_s, color=colour, label=f"{name}, p99")
        axes.plot(at_s, p50_s, color=colour, linestyle="--", linewidth=1, label=f"{name}, p50")
    delivered_s = [second.delivered_p99_ms / 1000 for second in overload.seconds]
    axes.plot(
        at_s, delivered_s, color=DELIVERED, linestyle="-.", linewidth=1, label="all by arrival, p99"
    )
    limit_s = overload.limit_ms / 1000
    axes.axhline(limit_s, color=SENT, linestyle=":", linewidth=1, label="normal below")
    if not math.isnan(overload.recovered_s):
        _mark_recovery(axes, overload)
    axes.set_yscale("log")
    lowest_s, highest_s = axes.get_ylim()
    axes.set_ylim(min(lowest_s, 0.01), max(highest_s, 1))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("lateness, by due, s")
    _legend_above(axes)


def _mark_recovery(axes: Axes, overload: Overload) -> None:
    recovered_s = overload.overload_s + overload.recovered_s
    axes.axvline(recovered_s, color=DELIVERED, linewidth=1)
    axes.annotate(
        f"normal again\nafter {overload.recovered_s:g} s",
        (recovered_s, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        horizontalalignment="right",
        color=DELIVERED,
    )


def _draw_memory(axes: Axes, seconds: Sequence[Second]) -> None:
    axes.plot(_middles(seconds), [second.anonymous_mb for second in seconds], color=LONG)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("proxy's anonymous\nmemory, MB")


def _legend_above(axes: Axes) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        fontsize="small",
        borderpad=0,
    )


def _middles(seconds: Sequence[Second]) -> list[float]:
    return [second.at_s + 0.5 for second in seconds]


def _in_seconds(late: Sequence[Lateness]) -> tuple[list[float], list[float]]:
    return [one.p50_ms / 1000 for one in late], [one.p99_ms / 1000 for one in late]
