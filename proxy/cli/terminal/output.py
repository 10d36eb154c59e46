"""What commands print: tables for people, JSON for programs, both on stdout.

Here all that is printed is made plain: no text from outside reaches a terminal otherwise."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from proxy.plain_text import plain

VALUE_SHOWN = 60

_shows_utc: ContextVar[bool] = ContextVar("shows_utc", default=False)


def say(*lines: str) -> None:
    """Print each on a line of stdout, at once, without markup."""
    print(*map(plain, lines), sep="\n", flush=True)


def counted(count: int, what: str) -> str:
    """`1 record`, `1,204 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def say_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of stdout, in ASCII without control characters."""
    print(json.dumps(value).replace("\x7f", "\\u007f"), flush=True)


def say_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], whole: Sequence[str] = ()
) -> None:
    """A table as wide as the terminal allows; elsewhere one plain line per row.

    Cells fold on a narrow terminal, but for those of the columns `whole`, to be copied.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        say(*_aligned([columns, *([*map(plain, row)] for row in rows)]))
        return
    table = Table(*(Column(name, overflow="fold", no_wrap=name in whole) for name in columns))
    for row in rows:
        table.add_row(*map(plain, row))
    console.print(table)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (map(str.ljust, row, widths) for row in rows)
    return ("  ".join(cells).rstrip() for cells in padded)


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar, and what sets how many of `total` are done; nothing where there is no terminal."""
    with Progress(transient=True, disable=not Console().is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def text_of(raw: bytes | None) -> str | None:
    """Bytes of a record for a program: text, what is none of it escaped."""
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def shown_bytes(raw: bytes | None) -> str:
    """Bytes of a record for a person: text where it is text, and not too long."""
    if raw is None:
        return "null"
    text = plain(raw.decode("utf-8", "backslashreplace"))
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}… ({len(raw)} bytes)"


def shown_time(epoch_ms: int) -> str:
    """Return a time with its date, milliseconds and offset from UTC."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
        return (moment if _shows_utc.get() else moment.astimezone()).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)


def show_utc(*, is_wanted: bool) -> None:
    """Show times in UTC from now on, if that is wanted. Else they are in the local zone."""
    _shows_utc.set(is_wanted)


def shown_duration(duration_ms: int) -> str:
    """A length of time in the largest unit that leaves no more than one decimal."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if duration_ms >= length_ms:
            return f"{round(duration_ms / length_ms, 1):g} {unit}"
    return f"{duration_ms} ms"
