"""Numbers and points in time as people read them, and small frames on a terminal."""

import json
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from proxy.logs import plain

UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
MOST_ROWS: Final = 1000
WIDEST: Final = 10_000
"""Width of a printed row in characters. The terminal wraps rows, but Rich would cut them."""
STARTS: Final = frozenset({"minute_ms", "hour_ms"})
MOMENTS: Final = frozenset(
    {"asked_ms", "at_ms", "audit_at_ms", "delivered_ms", "due_from_ms", "due_ms", "ended_ms"}
    | {"first_ms", "last_ms", "timestamp_ms", "until_ms"}
)
"""Columns with points in time. STARTS are shown to the minute. All other `_ms` are durations."""


def thousands(number: int) -> str:
    """Format 1234567 as `1 234 567`, with spaces that do not break."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def milliseconds(duration_ms: float | None) -> str:
    """Format a duration: `37 ms`, `1.5 s`, `2 h`; a dash for None."""
    if duration_ms is None:
        return "\N{EN DASH}"
    for unit_ms, unit in UNITS:
        if abs(duration_ms) >= unit_ms:
            return f"{duration_ms / unit_ms:.3g} {unit}"
    return f"{duration_ms:.3g} ms"


def moment(at_ms: int) -> str:
    """Format epoch ms as `2026-01-01 09:00:00.250 UTC`, or as a number if no date has this time."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"


def sentence(text: str) -> str:
    """Format a verdict's detail with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def print_rows(frame: DataFrame, *, as_json: bool, most: int = MOST_ROWS) -> None:
    """Print the first `most` rows, and say if there are more."""
    rows = frame.limit(most + 1).collect()
    shown = [row.asDict() for row in rows[:most]]
    if as_json:
        for row in shown:
            print(json.dumps(row, default=str))
        return
    table = Table(*[name.removesuffix("_ms") for name in frame.columns], box=None, pad_edge=False)
    for row in shown:
        table.add_row(*[_cell(name, value) for name, value in row.items()])
    Console(width=WIDEST, soft_wrap=True, markup=False, emoji=False).print(table)
    if len(rows) > most:
        print(f"... only the first {most} are shown")


def _cell(name: str, value: object) -> str:
    if name in STARTS:
        return moment(value)[:16] if isinstance(value, int) else "later"
    if name in MOMENTS and isinstance(value, int):
        return moment(value)
    if name.endswith("_ms") and isinstance(value, int):
        return milliseconds(value)
    return plain(value)
