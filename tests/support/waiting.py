"""Waiting for other processes."""

import time
from collections.abc import Callable

LOOK_EVERY_S = 0.05


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `condition` holds. Fail the test after `timeout_s`, naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(LOOK_EVERY_S)
