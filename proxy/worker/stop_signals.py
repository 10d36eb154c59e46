"""SIGTERM and SIGINT as a question that is asked between two pieces of work."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """True once SIGTERM or SIGINT has come; what is in hand is finished first."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
