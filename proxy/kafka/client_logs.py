"""What librdkafka logs, as lines of ours: the same complaint at most once in ten seconds.

A client that cannot connect says so some fifteen times a second.
"""

import logging
import re
import time
from typing import Final

import structlog

LOG_EVERY_S: Final = 10.0
MOST_KINDS: Final = 200
NUMBER: Final = re.compile(r"\d+")


class RepeatFilter:
    """Which lines to leave out; two are the same if only their numbers differ."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, int]] = {}

    def left_out(self, line: str, now_s: float) -> int | None:
        """How many of its kind were left out since the last one logged; None: leave it out, too."""
        kind = NUMBER.sub("#", line)
        logged_s, count = self._logged.get(kind, (-LOG_EVERY_S, 0))
        if now_s - logged_s < LOG_EVERY_S:
            self._logged[kind] = logged_s, count + 1
            return None
        self._logged.pop(kind, None)
        if len(self._logged) >= MOST_KINDS:
            del self._logged[next(iter(self._logged))]
        self._logged[kind] = now_s, 0
        return count


class _ToStructlog(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._filter = RepeatFilter()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        left_out = self._filter.left_out(line, time.monotonic())
        if left_out is not None:
            log = structlog.get_logger("librdkafka")
            more = {"left_out": left_out} if left_out else {}
            log.log(max(record.levelno, logging.INFO), "librdkafka", said=line, **more)


def silent_logger() -> logging.Logger:
    """Return a logger for the clients of a command, which says itself what is wrong.

    The client library prints fatal errors at any `log_level` where it has no logger.
    """
    logger = logging.getLogger("librdkafka.command")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def client_logger() -> logging.Logger:
    """The logger to hand to a client of librdkafka."""
    logger = logging.getLogger("librdkafka")
    if not logger.handlers:
        logger.addHandler(_ToStructlog())
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return logger
