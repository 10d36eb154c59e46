"""Small frames on a terminal, or as JSON lines for programs."""

import json

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from spark_jobs.results.formatting import milliseconds, moment

MOST_ROWS = 1000


def print_rows(frame: DataFrame, *, as_json: bool, most: int = MOST_ROWS) -> None:
    """Print the first `most` rows, in their order, and say so when there are more.

    In a table for people, `minute_ms` and `hour_ms` are moments and other `_ms` durations.
    """
    rows = frame.limit(most + 1).collect()
    shown = [row.asDict() for row in rows[:most]]
    if as_json:
        for row in shown:
            print(json.dumps(row))
        return
    table = Table(*[name.removesuffix("_ms") for name in frame.columns], box=None, pad_edge=False)
    for row in shown:
        table.add_row(*[_cell(name, value) for name, value in row.items()])
    Console(soft_wrap=True).print(table)
    if len(rows) > most:
        print(f"... only the first {most} are shown")


def _cell(name: str, value: object) -> str:
    if name in {"minute_ms", "hour_ms"}:
        return moment(value)[:16] if isinstance(value, int) else "later"
    if name.endswith("_ms") and isinstance(value, int):
        return milliseconds(value)
    return "" if value is None else str(value)
