"""Comparison of a run's figures with an earlier run.

Machines of the same kind differ in speed by half, so rates are never compared. Sizes are always
compared. Ratios within a run are compared if the relay's rates of both runs differ by at most the
factor SAME_PACE. Times also need the same kind of machine and the same options. A change counts
as better or worse if it is larger than 5 %, and larger than the spread of the rounds in each run.
If a figure has no spread, the change must exceed NOISE.
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
"""Hosts have the same pace if the rates of their relays differ by at most this factor."""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier report. `figures` has the value and spread of each figure, None if unknown."""

    name: str
    date: str
    setting: str
    figures: Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Change:
    """Relative change of a figure. +0.1 means 10 % more, NaN means that the figure is missing now.
    `verdict` is `worse` or `better`. It is empty if the change may be noise."""

    before: float
    change: float
    noise: float
    verdict: str


def setting_of(machine: Content, options: Sequence[str]) -> str:
    return ", ".join([str(machine["cpu"]), f"{machine['cores']} cores", *options])


def read(path: Path) -> Earlier:
    """Read a report that `--json` wrote. Raise BenchmarkError if it is no report."""
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
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    fitting = [earlier for earlier in found if earlier.setting == setting]
    return max(fitting, key=lambda earlier: earlier.date, default=None)


def changes(figures: Sequence[Figure], earlier: Earlier, setting: str) -> dict[str, Change]:
    """Return the change of each comparable figure. Old values of 0 or less are skipped."""
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
    """Return the relay's rates now and before if the hosts differ in pace, else None."""
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
