"""Times at which the records of one run were written, due and ended."""

from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 86_400_000
ROLL_AFTER_MS: Final = 7 * DAY_MS
RETRY_MS: Final = 10_000
AHEAD_MS: Final = 5_000
LATE_MS: Final = 7
HUNDRED_MS: Final = 10
"""Time between two successive hundreds of a partition."""
BEFORE_MS: Final = DAY_MS
"""Age of the first hundred."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Times of one hundred. Pending records are due at `far_ms`."""

    written_ms: int
    far_ms: int

    @property
    def hopped_ms(self) -> int:
        """Return when successors are written: before the next hundred is written."""
        return self.written_ms + HUNDRED_MS // 2

    @property
    def long_before_ms(self) -> int:
        return self.written_ms - ROLL_AFTER_MS - DAY_MS

    def due_ms(self, slot: int) -> int:
        return self.written_ms + AHEAD_MS + slot

    def ended_ms(self, wanted_ms: int) -> int:
        return wanted_ms + LATE_MS


@dataclass(frozen=True, slots=True)
class Times:
    now_ms: int

    def moment(self, number: int) -> Moment:
        written_ms = self.now_ms - BEFORE_MS + number * HUNDRED_MS
        return Moment(written_ms, self.now_ms + 3 * DAY_MS)

    @property
    def watermark_ms(self) -> int:
        return self.now_ms
