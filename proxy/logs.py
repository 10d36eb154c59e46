"""Logs on stderr, one line per event: text on a terminal, elsewhere JSON."""

import logging
import sys
from datetime import UTC, datetime
from io import StringIO, TextIOWrapper
from typing import Final, Literal, TextIO
from unicodedata import category

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

LogFormat = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]
FOR_PROGRAMS: Final[tuple[Processor, ...]] = (
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(),
)


def configure_logs(level: str, form: LogFormat, stream: TextIO | None = None) -> None:
    """Set up structlog for this process. `level` and `form` are the settings under `log`."""
    out = stream if stream is not None else sys.stderr
    console = form == "console" or (form == "auto" and out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *(_for_people(colors=out.isatty()) if console else FOR_PROGRAMS),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )


def change_level(level: Level) -> None:
    """Change this process's log level, from any thread."""
    lowest = logging.getLevelName(level.upper())
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(lowest))


def _for_people(*, colors: bool) -> list[Processor]:
    return [
        _time_of_day,
        _plain_values,
        structlog.dev.ConsoleRenderer(
            colors=colors,
            pad_event_to=0,
            # The default formatter shows local variables, which may hold passwords and tokens.
            exception_formatter=_plain_traceback,
        ),
    ]


def _plain_values(_log: object, _name: str, event: EventDict) -> EventDict:
    """Escape values that are text. The renderer escapes all other values."""
    return {name: plain(one) if isinstance(one, str) else one for name, one in event.items()}


def _plain_traceback(out: TextIO, error: ExcInfo) -> None:
    words = StringIO()
    structlog.dev.plain_traceback(words, error)
    out.write(plain_lines(words.getvalue()))


def _time_of_day(_log: object, _name: str, event: EventDict) -> EventDict:
    now = datetime.now(UTC).astimezone()
    event["timestamp"] = now.strftime("%H:%M:%S.%f")[:-3]
    return event


def show_any_text() -> None:
    """Escape characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def plain(text: object) -> str:
    """Escape control and format characters and line breaks. None becomes an empty text."""
    said = "" if text is None else str(text)
    return said if said.isprintable() else "".join(map(_plain, said))


def plain_lines(text: object) -> str:
    """Escape as `plain` does, but keep line breaks."""
    return "\n".join(map(plain, str(text).split("\n")))


def _plain(character: str) -> str:
    if character.isprintable() or category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
