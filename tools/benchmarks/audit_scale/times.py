"""The times of one run: when records were written, due, and ended."""

from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 86_400_000
ROLL_AFTER_MS: Final = 7 * DAY_MS
RETRY_MS: Final = 10_000
AHEAD_MS: Final = 5_000
LATE_MS: Final = 7
HUNDRED_MS: Final = 10
"""So long after the one before each hundred of a partition is written."""
BEFORE_MS: Final = DAY_MS
"""How long ago the first was."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The times of one hundred. far_ms: when what is pending is due."""

    written_ms: int
    far_ms: int

    @property
    def hopped_ms(self) -> int:
        """When successors are written: before the next hundred is."""
        return self.written_ms + HUNDRED_MS // 2

    @property
    def long_before_ms(self) -> int:
        """So old are records that are rolled."""
        return self.written_ms - ROLL_AFTER_MS - DAY_MS

    def due_ms(self, slot: int) -> int:
        """When what is delivered is due."""
        return self.written_ms + AHEAD_MS + slot

    def ended_ms(self, wanted_ms: int) -> int:
        """When it was delivered."""
        return wanted_ms + LATE_MS


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a run that began at `now_ms`."""

    now_ms: int

    def moment(self, number: int) -> Moment:
        """Of the hundred with this number in its partition."""
        written_ms = self.now_ms - BEFORE_MS + number * HUNDRED_MS
        return Moment(written_ms, self.now_ms + 3 * DAY_MS)

    @property
    def watermark_ms(self) -> int:
        """Up to here all has ended that fires."""
        return self.now_ms
