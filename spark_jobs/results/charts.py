"""The charts of the report as SVG. Their colours are variables of the page's style sheet."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from io import StringIO
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from spark_jobs.results.formatting import milliseconds, thousands
from spark_jobs.results.timeline import Axis, Timeline

BLUE, ORANGE, RED, FAINT, LINE = "#2563a8", "#e08a1e", "#c0322b", "#5d6878", "#dde2e9"
VARIABLES: Final = {
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    RED: "var(--bad)",
    FAINT: "var(--faint)",
    LINE: "var(--line)",
}
DAY_MS: Final = 86_400_000
"""matplotlib counts dates in days since 1970."""
LATE_TICKS_MS: Final = (
    *(1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, DAY_MS),
    *(10 * DAY_MS, 100 * DAY_MS, 1_000 * DAY_MS),
)
POINTS_PER_INCH: Final = 72
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 24, 34
"""Margins in points. They are the same in all charts, so that their time axes line up."""
ROW: Final = 30
NO_LEGEND: Final = 6
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "text.color": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}
ONLY_IN_FILES: Final = re.compile(r"<metadata>.*?</metadata>|(?<=<g) id=\"[^\"]*\"", re.DOTALL)
DECIMALS: Final = re.compile(r"(\d+\.\d\d)\d+(?![\d<])")
"""Matches the invisible digits of coordinates: the third and later decimals. Labels keep theirs."""


class Width(NamedTuple):
    """A chart's width: its name in the style sheet, its points, and the limit of time labels."""

    name: str
    points: int
    most_times: int


WIDE: Final = Width("wide", 690, 9)
NARROW: Final = Width("narrow", 300, 4)


def _draw_lateness(panels: Sequence[Axes], seen: Timeline) -> None:
    (axes,) = panels
    late = [one and [max(ms, 1) for ms in one[1:]] for one in seen.late]
    times, p50, p99, most = _outlines(seen.axis, late, 3)
    axes.fill_between(times, p50, p99, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(times, most, color=ORANGE, linewidth=2.4, label="latest")
    axes.plot(times, p99, color=BLUE, linewidth=0.8, label="99 %")
    axes.plot(times, p50, color=BLUE, linewidth=2, label="median")
    axes.set_yscale("log")
    highest_ms = max(one[2] for one in late if one)
    top_ms = max(highest_ms * 2, 20)
    axes.set_ylim(0.8, top_ms)
    axes.yaxis.set_major_locator(FixedLocator([ms for ms in LATE_TICKS_MS if ms <= top_ms]))
    axes.yaxis.set_minor_locator(NullLocator())
    said = FuncFormatter(lambda ms, _: f"≤ {milliseconds(ms)}" if ms <= 1 else milliseconds(ms))
    axes.yaxis.set_major_formatter(said)
    _legend(axes, 3)


def _draw_over_time(panels: Sequence[Axes], seen: Timeline) -> None:
    upper, lower = panels
    times, delivered, due, pending = _outlines(
        seen.axis, [*zip(seen.delivered, seen.due, seen.pending, strict=True)], 3
    )
    upper.fill_between(times, delivered, color=BLUE, alpha=0.25, linewidth=0)
    upper.plot(times, delivered, color=BLUE, linewidth=1.4, label="delivered")
    upper.plot(times, due, color=ORANGE, linewidth=1.4, linestyle=(0, (4, 2)), label="due")
    lower.fill_between(times, pending, color=FAINT, alpha=0.25, linewidth=0)
    lower.plot(times, pending, color=FAINT, linewidth=1.4, label="pending")
    for axes, columns in ((upper, 2), (lower, 1)):
        axes.set_ylim(bottom=0, top=None if axes.dataLim.ymax > 0 else 1)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: thousands(round(n))))
        _legend(axes, columns)


def _draw_violations(panels: Sequence[Axes], seen: Timeline) -> None:
    (axes,) = panels
    for row, (verdict, by_step) in enumerate(seen.violations.items()):
        middles = [(seen.axis.first_ms + (s + 0.5) * seen.axis.step_ms) / DAY_MS for s in by_step]
        sizes = [18 + 30 * math.log10(n) for n in by_step.values()]
        axes.axhline(row, color=LINE, linewidth=0.7, zorder=0)
        axes.scatter(middles, [row] * len(middles), s=sizes, color=RED, alpha=0.8, linewidths=0)
        said = f"{verdict}: {thousands(sum(by_step.values()))}"
        label = axes.annotate(
            said, (0, row), (0, 7), xycoords=("axes fraction", "data"), textcoords="offset points"
        )
        label.set_color(RED)
    axes.set_ylim(len(seen.violations) - 0.6, -0.75)
    axes.yaxis.set_major_locator(NullLocator())
    axes.grid(visible=False)


class Plan(NamedTuple):
    """A chart of stacked panels. `above`: the space above each panel, in points like `heights`."""

    title: str
    draw: Callable[[Sequence[Axes], Timeline], None]
    heights: Callable[[Timeline], Sequence[int]]
    """Return the heights of the panels, none if there is nothing to draw."""
    above: int = TOP


PLANS: Final = {
    "lateness": Plan(
        "Lateness by due time", _draw_lateness, lambda seen: (130,) if any(seen.late) else ()
    ),
    "over_time": Plan("Due, delivered and pending over time", _draw_over_time, lambda _: (110, 90)),
    "violations": Plan(
        "Violations over time",
        _draw_violations,
        lambda seen: (len(seen.violations) * ROW,) if seen.violations else (),
        NO_LEGEND,
    ),
}
"""`lateness`: the lateness of deliveries, by due. `over_time`: due and delivered records, and a
second panel of pending records. `violations`: a row for each verdict.
"""


def chart(name: str, seen: Timeline, width: Width) -> str:
    """Draw one of PLANS. Return '' if there is nothing to draw."""
    plan = PLANS[name]
    heights = plan.heights(seen)
    if not heights:
        return ""
    with mpl.rc_context({**STYLE, "svg.hashsalt": f"{plan.title} {width.name}"}):
        wide, tall = width.points, sum(plan.above + height for height in heights) + BOTTOM
        figure = Figure(figsize=(wide / POINTS_PER_INCH, tall / POINTS_PER_INCH))
        panels, bottom = [], tall
        for height in heights:
            bottom -= plan.above + height
            box = LEFT / wide, bottom / tall, (wide - LEFT - RIGHT) / wide, height / tall
            axes = figure.add_axes(box)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color=LINE, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.tick_params(length=3)
            panels.append(axes)
        plan.draw(panels, seen)
        for panel in panels:
            _times_along(panel, seen.axis, width, is_last=panel is panels[-1])
        return _svg(figure, plan.title, width)


def _times_along(axes: Axes, along: Axis, width: Width, *, is_last: bool) -> None:
    axes.set_xlim(along.first_ms / DAY_MS, along.end_ms / DAY_MS)
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=width.most_times)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    dates = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(dates)
    axes.tick_params(axis="x", labelbottom=is_last)
    axes.xaxis.get_offset_text().set_visible(is_last)


def _outlines(
    along: Axis, rows: Sequence[Sequence[float] | None], columns: int
) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(columns + 1)]
    for step, row in enumerate(rows):
        from_ms = along.first_ms + step * along.step_ms
        for edge_ms in (from_ms, from_ms + along.step_ms):
            values = [math.nan] * columns if row is None else row
            for column, value in zip(found, (edge_ms / DAY_MS, *values), strict=True):
                column.append(value)
    return found


def _legend(axes: Axes, columns: int) -> None:
    axes.legend(
        frameon=False,
        loc="lower right",
        ncols=columns,
        bbox_to_anchor=(1, 0.97),
        borderaxespad=0,
        handlelength=1.4,
        columnspacing=1.2,
    )


def _svg(figure: Figure, title: str, width: Width) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = ONLY_IN_FILES.sub("", text.getvalue())
    drawn = DECIMALS.sub(r"\1", drawn[drawn.index("<svg") :])
    for colour, variable in VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    named = f'<svg class="{width.name}" role="img" aria-label="{title}"'
    sizeless = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", drawn)
    return sizeless.replace("<svg", named, 1)
