"""Repeats of commands that failed because the broker was too slow, as a person would do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

TOO_SLOW: Final = re.compile("not answer in time|No Kafka broker answers")
TRIES: Final = 3
CHANGES: Final = {"replay", "--bootstrap"}
"""Commands that must not run twice, or whose broker is away on purpose."""


class Ended(Protocol):
    """Exit code and error output of a command."""

    @property
    def code(self) -> int: ...
    @property
    def err(self) -> str: ...


Said = TypeVar("Said", bound=Ended)


def patiently(arguments: tuple[str, ...], run: Callable[[], Said]) -> Said:
    for _ in range(TRIES):
        said = run()
        if said.code == 0 or CHANGES & {*arguments} or not TOO_SLOW.search(said.err):
            break
    return said
