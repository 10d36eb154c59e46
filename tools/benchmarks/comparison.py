"""The figures of a run beside those of an earlier one: what got worse, and not by chance.

Hosts of one kind differ by half, so rates are never compared. What is compared are ratios to
another measurement of the same run, sizes, and times on the same kind of machine. Some differ by
much more: then sizes alone, for what waits for the broker and what only computes do not get slower
alike.

A change is more than noise when it is larger than the spread of the rounds in either run, at least
5 %; for a figure without rounds it has to be larger than NOISE.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.figures import Figure, Kind

COMMITTED: Final = Path(__file__).parents[2] / "docs" / "benchmarks"
LEAST_NOISE: Final = 0.05
NOISE: Final = {
    Kind.SHARE: 0.15,
    Kind.COST: 0.15,
    Kind.SIZE: 0.15,
    Kind.TIME: 0.25,
    Kind.TAIL: 0.5,
}
ONLY_IN_THE_SAME_SETTING: Final = frozenset({Kind.TIME, Kind.TAIL})
RELAY: Final = "relay"
SAME_PACE: Final = 1.5
"""Up to so many times as fast, by the rate of the relay, is a host of the same pace."""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A report that was written before: value and spread of each figure, None where unknown."""

    name: str
    date: str
    setting: str
    figures: Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Change:
    """A figure against what it was before: +0.1 is 10 % more, NaN that it cannot be had any more.
    `verdict`: `worse` or `better`, empty where it may be noise."""

    before: float
    change: float
    noise: float
    verdict: str


def setting_of(machine: Content, options: Sequence[str]) -> str:
    """The kind of machine, and what was measured otherwise than usual."""
    return ", ".join([str(machine["cpu"]), f"{machine['cores']} cores", *options])


def read(path: Path) -> Earlier:
    """A report as `--json` writes it. BenchmarkError when it is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
        setting = setting_of(content["machine"], content.get("options", []))
        figures = {one["name"]: (one["value"], one.get("spread")) for one in content["figures"]}
        return Earlier(path.name, content["date"], setting, figures)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(
            f"{path} is no report of this benchmark ({error!r}): name a file that --json wrote."
        ) from error


def last_committed(setting: str, folder: Path = COMMITTED) -> Earlier | None:
    """The newest result of this setting in the repository; None when there is none."""
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    fitting = [earlier for earlier in found if earlier.setting == setting]
    return max(fitting, key=lambda earlier: earlier.date, default=None)


def changes(figures: Sequence[Figure], earlier: Earlier, setting: str) -> dict[str, Change]:
    """Of every figure that can be compared, by its name: none that was 0 or less before."""
    is_same_setting = earlier.setting == setting
    has_same_pace = other_pace(figures, earlier) is None
    found = {}
    for figure in figures:
        carries_over = is_same_setting or figure.kind not in ONLY_IN_THE_SAME_SETTING
        carries_over &= has_same_pace or figure.kind is Kind.SIZE
        change = _change(figure, *earlier.figures.get(figure.name, (None, None)))
        if carries_over and change is not None:
            found[figure.name] = change
    return found


def other_pace(figures: Sequence[Figure], earlier: Earlier) -> tuple[float, float] | None:
    """The relay's rate and what it was before, where these hosts are not of the same pace."""
    before = earlier.figures.get(RELAY, (None, None))[0]
    now = next((figure.value for figure in figures if figure.name == RELAY), None)
    if not now or not before or max(now / before, before / now) <= SAME_PACE:
        return None
    return now, before


def _change(figure: Figure, before: float | None, spread: float | None) -> Change | None:
    if figure.kind not in NOISE or before is None or before <= 0:
        return None
    spreads = [one for one in (figure.spread, spread) if one is not None]
    noise = max(LEAST_NOISE, *spreads) if spreads else NOISE[figure.kind]
    change = figure.value / before - 1
    if math.isnan(change):
        return Change(before, change, noise, "worse")
    is_worse = (change < 0) == (figure.kind is Kind.SHARE)
    verdict = "worse" if is_worse else "better"
    return Change(before, change, noise, verdict if abs(change) > noise else "")
