"""Progress of a download: a bar on a terminal, a few plain lines elsewhere."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

PLAIN_STEP_PERCENT = 25


class Progress:
    """Counts bytes from several threads and tells `show(done_bytes)` about each piece."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._done_bytes = 0
        self._lock = threading.Lock()

    @contextmanager
    def of_file(self, _name: str, _size_bytes: int) -> Iterator[Callable[[int], None]]:
        """The shape in which jgo's resolver reports one file: gives it the counter to call."""
        yield self._add

    def _add(self, piece_bytes: int) -> None:
        with self._lock:
            self._done_bytes += piece_bytes
            self._show(self._done_bytes)


@contextmanager
def shown_progress(title: str, total_bytes: int) -> Iterator[Progress]:
    """Show on stderr how many of `total_bytes` have come, under `title`."""
    console = Console(stderr=True)
    shown = _bar if console.is_terminal else _lines
    with shown(console, title, total_bytes) as progress:
        yield progress


@contextmanager
def _bar(console: Console, title: str, total_bytes: int) -> Iterator[Progress]:
    console.print(title, highlight=False)
    columns = (TextColumn("  "), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total_bytes)
        yield Progress(lambda done_bytes: bar.update(task, completed=done_bytes))


@contextmanager
def _lines(_console: Console, title: str, total_bytes: int) -> Iterator[Progress]:
    told_percent = 0

    def show(done_bytes: int) -> None:
        nonlocal told_percent
        percent = min(100, done_bytes * 100 // max(1, total_bytes))
        if percent - told_percent >= PLAIN_STEP_PERCENT:
            told_percent = percent - percent % PLAIN_STEP_PERCENT
            print(f"  {told_percent} %", file=sys.stderr, flush=True)

    print(title, file=sys.stderr, flush=True)
    yield Progress(show)
