"""Whether time grows with the number of records as a straight line does."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

MILLION: Final = 1_000_000
STRAIGHT: Final = 1.15
"""No step may be so much dearer for each record than the line through all points is."""

Point = tuple[int, float]
"""Records, and the seconds that they took."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The line through all points (the least sum of squares), and how dear each step was: seconds
    for each further million, from one point to the next."""

    fixed_s: float
    per_million_s: float
    steps_s: tuple[float, ...]

    @classmethod
    def through(cls, points: Sequence[Point]) -> "Curve":
        """Through at least three points, by rising numbers of records."""
        millions = [records / MILLION for records, _ in points]
        slope, fixed_s = np.polyfit(millions, [seconds for _, seconds in points], 1)
        steps = tuple(
            (later_s - earlier_s) / (later - earlier) * MILLION
            for (earlier, earlier_s), (later, later_s) in pairwise(points)
        )
        return cls(float(fixed_s), float(slope), steps)

    @property
    def is_straight(self) -> bool:
        """Whether no step is much dearer than the line."""
        return max(self.steps_s) <= self.per_million_s * STRAIGHT

    def to_json(self) -> dict[str, object]:
        """One line for programs."""
        return {
            "fixed_s": round(self.fixed_s, 1),
            "per_million_s": round(self.per_million_s, 1),
            "steps_s": [round(step, 1) for step in self.steps_s],
            "is_straight": self.is_straight,
        }
