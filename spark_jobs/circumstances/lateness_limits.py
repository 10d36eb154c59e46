"""How late deliveries may be before an audit calls it a violation."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.records.topic_names import java_regex

LIMITS: Final = "array<struct<targets:string,max_ms:bigint>>"
"""targets: a regular expression; the first that matches counts."""
USUAL_MS: Final = 60_000
"""What is later than that is counted as late, though nobody asked for a limit."""
LIMIT: Final = re.compile(r"(?:(?P<targets>[^=]+)=)?(?P<number>[0-9]{1,15})(?P<unit>ms|[smhd]?)")
UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class LatenessLimits:
    """In ms; by_target: for shell patterns, the first that matches counts; most_ms: for all other
    targets, and for records that are for none. None, and no patterns: nobody asked."""

    most_ms: int | None = None
    by_target: tuple[tuple[str, int], ...] = ()

    def told(self) -> list[dict[str, Any]] | None:
        """LIMITS; None without any, so that nothing is looked up."""
        rows = [{"targets": java_regex([one]), "max_ms": most} for one, most in self.by_target]
        return rows or None


NO_LIMITS: Final = LatenessLimits()


def lateness_limits(texts: Iterable[str]) -> LatenessLimits:
    """From texts like `2s` (for all) and `orders-*=500ms`; without unit: ms.

    Raises ValueError with what is wrong."""
    most_ms: int | None = None
    by_target: list[tuple[str, int]] = []
    for text in texts:
        found = LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text} is no limit: write 2s, 500ms or 'orders-*=2s'")
        limit_ms = int(found["number"]) * UNITS_MS[found["unit"]]
        if found["targets"]:
            by_target.append((found["targets"], limit_ms))
        elif most_ms is None:
            most_ms = limit_ms
        else:
            raise ValueError(f"two limits for all targets, {most_ms}ms and {text}: give one")
    return LatenessLimits(most_ms, tuple(by_target))
