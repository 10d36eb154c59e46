"""A minute of turns, drawn: how long each took, by step; the longest are named."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure

COLOURS: Final = {
    "fetch": "#9aa0a6",
    "confirm": "#4c78a8",
    "put": "#f58518",
    "due": "#e45756",
    "publish": "#72b7b2",
    "tidy": "#54a24b",
    "answer": "#eeca3b",
    "look": "#b279a2",
    "other": "#5b4636",
}
COLUMN_S: Final = 0.05
"""In the upper picture the longest turn of each such time stands for all."""
NAMED: Final = 10
APART: Final = 0.02
"""Of the width: of two turns that are nearer only the longer one is named."""
LONGEST_S: Final = 75.0
"""What began earlier is drawn from there on: a turn may have lasted for hours."""
SHORTEST_MS: Final = 0.01
ROOM_FOR_NAMES: Final = 1.35
LENGTH: Final = "ms, without waiting for records"
DAY_S: Final = 86_400
DPI: Final = 150

Numbers: TypeAlias = npt.NDArray[np.float64]


class _Minute:
    """Turns as arrays of seconds. `began` since 1970; `steps` without the wait for a record."""

    def __init__(self, rows: Mapping[str, Sequence[int]]) -> None:
        columns = {name: np.asarray(values, np.float64) / 1e6 for name, values in rows.items()}
        rest = np.minimum(columns["fetch_us"], columns["may_wait_us"])
        self.busy: Numbers = columns["took_us"] - rest
        self.ended: Numbers = columns["at_us"] + columns["took_us"]
        self.began: Numbers = np.maximum(columns["at_us"], self.ended.max() - LONGEST_S)
        self.steps = {step: columns[f"{step}_us"] for step in COLOURS}
        self.steps["fetch"] = self.steps["fetch"] - rest

    def longest_step(self) -> npt.NDArray[np.intp]:
        """Of each turn, by its place among `steps`."""
        return np.asarray(np.argmax(np.stack(list(self.steps.values())), axis=0), np.intp)


def draw(rows_by_worker: Mapping[str, Mapping[str, Sequence[int]]], path: Path) -> None:
    """Two pictures for each worker: the steps stacked, and each turn as a dot. Raises OSError."""
    figure = Figure(figsize=(14, 7 * len(rows_by_worker)), layout="constrained")
    places = figure.subplots(2 * len(rows_by_worker), 1, squeeze=False, sharex=False)[:, 0]
    for number, (name, rows) in enumerate(rows_by_worker.items()):
        upper, lower = places[2 * number], places[2 * number + 1]
        minute = _Minute(rows)
        _draw_steps(upper, name, minute)
        _draw_turns(lower, minute)
        lower.set_xlim(upper.get_xlim())
    figure.savefig(path, dpi=DPI)


def _draw_steps(axes: Axes, name: str, minute: _Minute) -> None:
    starts, turns = _longest_by_column(minute)
    heights = [np.where(turns < 0, 0, took[turns]) * 1000 for took in minute.steps.values()]
    axes.stackplot(
        starts / DAY_S,
        heights,
        labels=list(minute.steps),
        colors=list(COLOURS.values()),
        step="post",
    )
    axes.set_title(f"{name}: the longest turn in each {COLUMN_S * 1000:g} ms", loc="left")
    axes.set_ylabel(LENGTH)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(COLOURS),
        fontsize="small",
        frameon=False,
    )
    axes.set_ylim(0, ROOM_FOR_NAMES * float(minute.busy.max()) * 1000)
    axes.set_xlim(starts[0] / DAY_S, (starts[-1] + COLUMN_S) / DAY_S)
    _name_longest(axes, minute)
    _show_times(axes)


def _draw_turns(axes: Axes, minute: _Minute) -> None:
    """Many: as pixels, also in a file of vectors."""
    colours = np.array(list(COLOURS.values()))[minute.longest_step()]
    axes.scatter(
        minute.began / DAY_S, minute.busy * 1000, s=3, c=colours, linewidths=0, rasterized=True
    )
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(SHORTEST_MS, float(np.percentile(minute.busy, 1)) * 500))
    axes.set_title("Each turn, in the colour of its longest step", loc="left", fontsize="medium")
    axes.set_ylabel(LENGTH)
    axes.grid(alpha=0.3)
    _show_times(axes)


def _longest_by_column(minute: _Minute) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """When each column begins, and its longest turn among those under way in it; -1: none."""
    first = np.floor(minute.began / COLUMN_S).astype(np.int64)
    last = np.floor(minute.ended / COLUMN_S).astype(np.int64)
    counts = np.maximum(1, last - first + 1)
    turns = np.repeat(np.arange(len(first)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = first[turns] + within - first.min()
    found = np.full(int(columns.max()) + 1, -1, np.int64)
    by_length = np.argsort(minute.busy[turns], kind="stable")
    found[columns[by_length]] = turns[by_length]
    return (first.min() + np.arange(len(found))) * COLUMN_S, found


def _name_longest(axes: Axes, minute: _Minute) -> None:
    names, longest_step = list(minute.steps), minute.longest_step()
    left, right = axes.get_xlim()
    named: list[float] = []
    for turn in np.argsort(-minute.busy, kind="stable"):
        at = float(minute.began[turn]) / DAY_S
        if all(abs(at - other) > APART * (right - left) for other in named):
            named.append(at)
            step = names[longest_step[turn]]
            text = f"{step} {minute.steps[step][turn] * 1000:,.1f}"
            top = (at, float(minute.busy[turn]) * 1000)
            axes.annotate(
                text, top, rotation=60, fontsize=8, xytext=(0, 2), textcoords="offset points"
            )
        if len(named) == NAMED:
            return


def _show_times(axes: Axes) -> None:
    """Of the day, in the zone of this machine."""
    zone = datetime.now().astimezone().tzinfo
    axes.xaxis_date(zone)
    locator = axes.xaxis.get_major_locator()
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
