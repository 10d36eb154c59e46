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
    """

    def ask(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise StopAsked

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    yield
