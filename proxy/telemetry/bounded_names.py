"""Names that come from outside, as labels of a bounded number of series."""

from collections.abc import Iterable
from typing import Final

OTHER: Final = "(other)"
"""No topic's name has parentheses, so no target is called so."""
LONGEST_NAME: Final = 249
"""As long as a topic's name may be."""


class BoundedNames:
    """Numbers the first `most` names that are met; all others share the number `most`, so that no
    series ever goes from one to the other."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of its series."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._numbers) == self.most or name == OTHER or len(name) > LONGEST_NAME:
            return self.most
        return self._numbers.setdefault(name, len(self._numbers))

    def by_number(self) -> dict[int, str]:
        """The names that have a series, and that of all others."""
        return {number: name for name, number in self._numbers.items()} | {self.most: OTHER}

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """The number of each."""
        return {name: self.number(name) for name in names}
