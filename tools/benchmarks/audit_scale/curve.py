"""Test whether the audit's time grows linearly with the number of records."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

MILLION: Final = 1_000_000
STRAIGHT: Final = 1.15
"""In each step, a further record may take at most this multiple of its time on the fitted line. A
step leads from one measured number of records to the next."""

Point = tuple[int, float]
"""Number of records, and the seconds that their audit took."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Least-squares line through all points. A step leads from one point to the next. `steps_s` has
    its seconds per million further records."""

    fixed_s: float
    per_million_s: float
    steps_s: tuple[float, ...]

    @classmethod
    def through(cls, points: Sequence[Point]) -> "Curve":
        """Fit at least three points, sorted by records."""
        millions = [records / MILLION for records, _ in points]
        slope, fixed_s = np.polyfit(millions, [seconds for _, seconds in points], 1)
        steps = tuple(
            (later_s - earlier_s) / (later - earlier) * MILLION
            for (earlier, earlier_s), (later, later_s) in pairwise(points)
        )
        return cls(float(fixed_s), float(slope), steps)

    @property
    def is_straight(self) -> bool:
        return max(self.steps_s) <= self.per_million_s * STRAIGHT

    def to_json(self) -> dict[str, object]:
        return {
            "fixed_s": round(self.fixed_s, 1),
            "per_million_s": round(self.per_million_s, 1),
            "steps_s": [round(step, 1) for step in self.steps_s],
            "is_straight": self.is_straight,
        }
