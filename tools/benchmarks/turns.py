"""Kinds measured in turns: the machine changes more between two runs than what is compared.

A round measures each kind twice, in mirrored order, and only figures of one round are compared:
a machine that slows down evenly meanwhile changes no ratio.
"""

from collections.abc import Callable, Sequence
from statistics import mean, median

Figures = dict[str, float]
Rounds = list[dict[str, Figures]]
"""Of each round the figures of each kind, the mean of its time there and its time back."""


def in_turns(
    kinds: Sequence[str], rounds: int, name: str, measure: Callable[[str, str], Figures]
) -> Rounds:
    """`rounds` rounds of `measure(kind, trial_name)`; prints each measurement as it is made."""
    return [_round(kinds, f"{name}-{number}", measure) for number in range(rounds)]


def told(found: Sequence[float]) -> str:
    """The median of some figures, and their range."""
    return f"{median(found):,.2f} ({min(found):,.2f} to {max(found):,.2f})"


def ratios(rounds: Rounds, kind: str, other: str, figure: str) -> list[float]:
    """One kind's figure against another's, round by round."""
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
    """Each figure's mean; all measured the same ones."""
    return {name: mean(one[name] for one in measured) for name in measured[0]}
