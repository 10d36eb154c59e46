"""Polling for SIGTERM and SIGINT, so that a process finishes its current work before it ends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once SIGTERM or SIGINT has come."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
