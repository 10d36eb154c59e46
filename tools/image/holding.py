"""Checks in a trial, and the error of a failed check."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 0.25
LAST_CHARACTERS: Final = 3_000


class DidNotHold(Exception):
    """A claim that is false, with the observation that shows it."""


def held(holds: bool, saw: str) -> str:
    if not holds:
        raise DidNotHold(saw)
    return saw


def await_that(holds: Callable[[], bool], limit_s: float, log: Path) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            said = log.read_text("utf-8", "replace")[-LAST_CHARACTERS:]
            raise DidNotHold(f"not within {limit_s:.0f} s; its log ends with:\n{said}")
        time.sleep(LOOK_EVERY_S)
