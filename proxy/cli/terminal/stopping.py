"""Ctrl-C and SIGTERM as one exception, raised once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopAsked(BaseException):
    """SIGTERM or SIGINT came."""


@contextmanager
def stop_raises() -> Iterator[None]:
    """Within the block the first signal raises StopAsked in the main thread.

    Later signals are ignored, to the end of the process: tidying up is not to be interrupted.
    Without any signal all is as before once the block has ended.
    """
    came: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise StopAsked

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if not came:
                signal.signal(number, handler)
