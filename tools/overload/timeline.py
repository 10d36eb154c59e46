"""Memory of the worker and records in progress, second by second."""

from __future__ import annotations

import time
from typing import NamedTuple

from tools.benchmarks.accounting import resident
from tools.benchmarks.watch import Watch
from tools.overload.progress import Progress


class Sample(NamedTuple):
    at_s: float
    anonymous_bytes: int
    file_bytes: int
    written: int
    received: int


class Mark(NamedTuple):
    at_s: float
    what: str


class Timeline(Watch):
    """Samples of process `pid`, once a second until closed. While `pid` is None, none are taken."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.pid: int | None = None
        self.samples: list[Sample] = []
        self.marks: list[Mark] = []
        self.began_ms = time.time() * 1000
        self._progress = progress
        self.begin()

    @property
    def at_s(self) -> float:
        return self.second_of(time.time() * 1000)

    def second_of(self, moment_ms: float) -> float:
        return round((moment_ms - self.began_ms) / 1000, 2)

    def mark(self, what: str, at_s: float | None = None) -> float:
        """Add an event at `at_s`, by default now. Return its second."""
        mark = Mark(self.at_s if at_s is None else at_s, what)
        self.marks.append(mark)
        return mark.at_s

    def look(self) -> None:
        if (pid := self.pid) is None:
            return
        memory, progress = resident(pid), self._progress
        if memory.anonymous_bytes:
            sizes = (memory.anonymous_bytes, memory.file_bytes)
            self.samples.append(Sample(self.at_s, *sizes, sum(progress.written), progress.received))
