"""The curves of the report as SVG text, ready to stand in a page."""

import re
from collections.abc import Sequence
from datetime import UTC
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from spark_jobs.results.formatting import milliseconds, thousands

DELIVERED, DUE, FAINT, LINE = "#2563a8", "#e08a1e", "#5d6878", "#dde2e9"
DAY_MS: Final = 86_400_000
"""matplotlib counts dates in days since 1970."""
LATE_TICKS_MS: Final = (
    *(1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, DAY_MS),
    *(10 * DAY_MS, 100 * DAY_MS, 1_000 * DAY_MS),
)
SIZE_INCHES: Final = (9.6, 3.1)
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafka-delay-proxy",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


def lateness_chart(bars: Sequence[tuple[float, float, int]]) -> str:
    """Bars (from_ms, to_ms, records) on logarithmic axes; empty without bars."""
    if not bars:
        return ""
    with mpl.rc_context(STYLE):
        figure, axes = _canvas()
        lefts, widths = [left for left, _, _ in bars], [right - left for left, right, _ in bars]
        axes.bar(
            lefts,
            [n for *_, n in bars],
            widths,
            align="edge",
            color=DELIVERED,
            edgecolor="white",
            linewidth=0.6,
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda late_ms, _: milliseconds(late_ms)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: thousands(round(n))))
        axes.xaxis.set_major_locator(FixedLocator(_within(LATE_TICKS_MS, lefts[0], lefts[-1])))
        axes.minorticks_off()
        axes.set_xlabel("late by")
        axes.set_ylabel("records")
        return _svg(figure, "Histogram of lateness")


def over_time_chart(points: Sequence[tuple[int, int, int]]) -> str:
    """Steps (at_ms, due, delivered) of equal length; empty without any."""
    if not points:
        return ""
    with mpl.rc_context(STYLE):
        figure, axes = _canvas()
        times = [at_ms / DAY_MS for at_ms, *_ in points]
        delivered = [n for *_, n in points]
        axes.fill_between(times, delivered, step="post", color=DELIVERED, alpha=0.25, linewidth=0)
        axes.step(times, delivered, where="post", color=DELIVERED, linewidth=1.4, label="delivered")
        axes.step(
            times,
            [n for _, n, _ in points],
            where="post",
            color=DUE,
            linewidth=1.4,
            linestyle=(0, (4, 2)),
            label="due",
        )
        axes.set_ylim(bottom=0)
        axes.set_xmargin(0.01)
        locator = AutoDateLocator(tz=UTC, maxticks=9)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(dates)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: thousands(round(n))))
        axes.legend(frameon=False, loc="upper right", ncols=2, bbox_to_anchor=(1, 1.14))
        axes.set_ylabel("records")
        return _svg(figure, "Records due and delivered over time")


def _within(ticks: Sequence[float], low: float, high: float) -> list[float]:
    """Those between the limits and one more on either side, so that two are seen at least."""
    inside = [tick for tick in ticks if low / 10 <= tick <= high * 10]
    return inside or list(ticks[-2:])


def _canvas() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    """Without what only a file of its own needs; the page gives it its width."""
    text = StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Title": title})
    drawn = text.getvalue()
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", drawn[drawn.index("<svg") :])
