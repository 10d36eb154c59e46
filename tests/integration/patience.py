"""Commands that ask a broker, asked again where it was too slow for them, as by a person."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

TOO_SLOW: Final = re.compile("does not answer in time|No Kafka broker answers")
TRIES: Final = 3
CHANGES: Final = {"replay", "--bootstrap"}
"""What is not to be done twice, and a broker that is away on purpose."""


class Ended(Protocol):
    """How a command ended, and what it said of errors."""

    @property
    def code(self) -> int: ...
    @property
    def err(self) -> str: ...


Said = TypeVar("Said", bound=Ended)


def patiently(arguments: tuple[str, ...], run: Callable[[], Said]) -> Said:
    """What the command says with these arguments."""
    for _ in range(TRIES):
        said = run()
        if said.code == 0 or CHANGES & {*arguments} or not TOO_SLOW.search(said.err):
            break
    return said
