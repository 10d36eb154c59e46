"""How fast a replay may go. Time is an argument."""

import re
from dataclasses import dataclass
from typing import Final

_RATE: Final = re.compile(r"([1-9]\d{0,8})/(s|m|h)", re.ASCII)
_MS_PER: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
BURST_MS: Final = 250
"""What falls into so much time may go out at once."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many letters in so many milliseconds."""

    letters: int
    per_ms: int

    def at_once(self, most: int) -> int:
        """How many to send together, from 1 to `most`."""
        return max(1, min(most, self.letters * BURST_MS // self.per_ms))

    def wait_ms(self, sent: int, since_ms: int) -> int:
        """How long to wait, `since_ms` after the start, before the next when `sent` have gone."""
        due_ms = -(-sent * self.per_ms // self.letters)
        return max(0, due_ms - since_ms)


def read_rate(text: str) -> Rate:
    """`100/s`, `30/m` or `5/h`. Raises ValueError with a sentence."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no rate: write letters per second, minute or hour (100/s)")
    return Rate(int(found[1]), _MS_PER[found[2]])
