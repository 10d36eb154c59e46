"""Time series in memory, and the notation of promtool's test files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import promql_parser

NAME = "__name__"
LOOKBACK_S = 300.0
Labels = frozenset[tuple[str, str]]
Point = tuple[float, float | None]
"""(epoch s, value). None ends the series."""

REPEATED = re.compile(
    r"(?P<start>_|stale|[-+]?[\d.]+(?:e[-+]?\d+)?)(?P<step>[-+][\d.]+)?x(?P<n>\d+)"
)


@dataclass(slots=True)
class Series:
    points: dict[Labels, list[Point]] = field(default_factory=dict)

    def add(self, labels: Labels, at_s: float, value: float | None) -> None:
        self.points.setdefault(labels, []).append((at_s, value))

    def at(self, at_s: float) -> Iterator[tuple[Labels, float, float]]:
        """Yield labels, time and value of the series seen within five minutes before a moment."""
        for labels, points in self.points.items():
            told = next(((t, v) for t, v in reversed(points) if t <= at_s), None)
            if told is not None and told[1] is not None and told[0] > at_s - LOOKBACK_S:
                yield labels, told[0], told[1]

    def within(
        self, at_s: float, range_s: float
    ) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
        """Yield labels and points of a range, without its begin."""
        for labels, points in self.points.items():
            found = [(t, v) for t, v in points if at_s - range_s < t <= at_s and v is not None]
            if found:
                yield labels, found


def labels_of(selector: str) -> Labels:
    if selector.startswith("{"):
        selector = "x" + selector
    parsed = promql_parser.parse(selector)
    assert isinstance(parsed, promql_parser.VectorSelector)
    named = {(matcher.name, matcher.value) for matcher in parsed.matchers.matchers}
    return frozenset(
        named | ({(NAME, parsed.name)} if parsed.name and parsed.name != "x" else set())
    )


def values_of(notation: str) -> Iterator[float | str | None]:
    """Yield the values of `1 2+3x4 _x5 stale`: None ends the series, "_" is a missing scrape."""
    for word in notation.split():
        found = REPEATED.fullmatch(word)
        if found is None:
            yield _value(word)
            continue
        start, step = _value(found["start"]), float(found["step"] or 0)
        times = int(found["n"]) + isinstance(start, float)
        yield from (start + step * n if isinstance(start, float) else start for n in range(times))


def read_series(given: Iterable[dict[str, str]], interval_s: float) -> Series:
    read = Series()
    for one in given:
        for number, value in enumerate(values_of(one["values"])):
            if not isinstance(value, str):
                read.add(labels_of(one["series"]), number * interval_s, value)
    return read


def _value(word: str) -> float | str | None:
    if word == "stale":
        return None
    return "_" if word == "_" else float(word.replace("Inf", "inf")) if word != "NaN" else math.nan
