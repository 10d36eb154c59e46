"""What librdkafka logs, as lines of ours: the same complaint at most once in ten seconds.

A client that cannot connect says so some fifteen times a second.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Final

import structlog

TOLD_EVERY_S: Final = 10.0
MOST_KINDS: Final = 200
NUMBER: Final = re.compile(r"\d+")


class Repeats:
    """Which lines to leave out; two are the same if only their numbers differ."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, int]] = {}

    def left_out(self, said: str, now_s: float) -> int | None:
        """How many of its kind were left out since the last one told; None: leave it out, too."""
        kind = NUMBER.sub("#", said)
        told_s, count = self._told.get(kind, (-TOLD_EVERY_S, 0))
        if now_s - told_s < TOLD_EVERY_S:
            self._told[kind] = told_s, count + 1
            return None
        self._told.pop(kind, None)
        if len(self._told) >= MOST_KINDS:
            del self._told[next(iter(self._told))]
        self._told[kind] = now_s, 0
        return count


class _ToStructlog(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        left_out = self._repeats.left_out(said, time.monotonic())
        if left_out is not None:
            log = structlog.get_logger("librdkafka")
            more = {"left_out": left_out} if left_out else {}
            log.log(max(record.levelno, logging.INFO), "librdkafka", said=said, **more)


def client_logger() -> logging.Logger:
    """The logger to hand to a client of librdkafka."""
    logger = logging.getLogger("librdkafka")
    if not logger.handlers:
        logger.addHandler(_ToStructlog())
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return logger
