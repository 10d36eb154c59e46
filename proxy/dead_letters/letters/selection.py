"""Which letters a person means: by reason, target, origin and time."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from proxy.dead_letters.letters.letter import Letter
from proxy.records.rejection import REASONS
from proxy.requests.times import parse_delay_ms, parse_instant_ms

CLOCKS_APART_MS: Final = 60_000
"""Letters are stamped by the proxies' own clocks: how far out of order they may lie."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; an empty part wants all. Its texts are shell patterns.

    `from_ms` is within, `to_ms` is not; both are compared with when the letter was written.
    """

    reasons: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def takes(self, letter: Letter) -> bool:
        """Whether this letter is meant."""
        return (
            (not self.reasons or _is_any(self.reasons, letter.reason))
            and (not self.targets or _is_any(self.targets, letter.target))
            and (not self.origins or self._is_from(letter))
            and (self.from_ms is None or letter.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or letter.timestamp_ms < self.to_ms)
        )

    def _is_from(self, letter: Letter) -> bool:
        known = (str(letter.origin), letter.first_origin)
        return any(_is_any(self.origins, origin) for origin in known)


def read_reasons(texts: Iterable[str]) -> tuple[str, ...]:
    """Codes of `timer-error`. Raises ValueError for one that no letter can have."""
    for text in texts:
        if text not in REASONS:
            near = get_close_matches(text, REASONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(REASONS)}"
            raise ValueError(f"{text!r} is no reason: {hint}")
    return tuple(texts)


def read_moment_ms(text: str, now_ms: int) -> int:
    """A time as people give it: RFC 3339 with a zone, epoch ms, or an age (`2h`: two hours ago).

    Raises ValueError with a sentence.
    """
    if not text.isdigit():
        try:
            return now_ms - parse_delay_ms(text)
        except ValueError:
            pass
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}; or an age (30m 2h 7d)") from None


def _is_any(patterns: Iterable[str], text: str | None) -> bool:
    return text is not None and any(fnmatchcase(text, pattern) for pattern in patterns)
