"""Measurements of several kinds in turns, because a machine's speed varies more than the kinds
differ. A round measures each kind twice: in order, then in reverse order. Only figures of one round
are compared. So a machine that slows down steadily changes no ratio."""

from collections.abc import Callable, Sequence
from statistics import mean, median

Figures = dict[str, float]
Rounds = list[dict[str, Figures]]
"""For each round: kind -> figures, which are the means of the kind's two measurements."""


def in_turns(
    kinds: Sequence[str], rounds: int, name: str, measure: Callable[[str, str], Figures]
) -> Rounds:
    """Run `measure(kind, trial_name)` for all rounds and print each measurement."""
    return [_round(kinds, f"{name}-{number}", measure) for number in range(rounds)]


def told(found: Sequence[float]) -> str:
    return f"{median(found):,.2f} ({min(found):,.2f} to {max(found):,.2f})"


def ratios(rounds: Rounds, kind: str, other: str, figure: str) -> list[float]:
    return [of[kind][figure] / of[other][figure] for of in rounds]


def _round(
    kinds: Sequence[str], name: str, measure: Callable[[str, str], Figures]
) -> dict[str, Figures]:
    found: dict[str, list[Figures]] = {kind: [] for kind in kinds}
    for way, order in (("there", kinds), ("back", kinds[::-1])):
        for kind in order:
            figures = measure(kind, f"{name}-{way}-{kind}")
            print(f"{name}, {kind}: {figures}", flush=True)
            found[kind].append(figures)
    return {kind: mean_of(both) for kind, both in found.items()}


def mean_of(measured: Sequence[Figures]) -> Figures:
    return {name: mean(one[name] for one in measured) for name in measured[0]}
