"""Waiting for what another process does."""

import time
from collections.abc import Callable

LOOK_EVERY_S = 0.05


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return when `condition` holds; fail the test, naming `what`, when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(LOOK_EVERY_S)
