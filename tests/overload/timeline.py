"""What a scenario looks like over time: the worker's memory and what is on its way, each second."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

from tests.benchmarks.accounting import resident
from tests.overload.progress import Progress

EVERY_S: Final = 1.0


class Sample(NamedTuple):
    """At a moment (seconds into the scenario): memory of the proxy, records sent and received."""

    at_s: float
    anonymous_bytes: int
    file_bytes: int
    written: int
    received: int


class Mark(NamedTuple):
    """What happened at a moment (seconds into the scenario)."""

    at_s: float
    what: str


class Timeline:
    """Looks once a second from a thread of its own until closed."""

    def __init__(self, progress: Progress) -> None:
        self.pid: int | None = None
        self.samples: list[Sample] = []
        self.marks: list[Mark] = []
        self.began_ms = time.time() * 1000
        self._progress = progress
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def at_s(self) -> float:
        """Now, in seconds into the scenario."""
        return self.second_of(time.time() * 1000)

    def second_of(self, moment_ms: float) -> float:
        """A moment (epoch ms) in seconds into the scenario."""
        return round((moment_ms - self.began_ms) / 1000, 2)

    def mark(self, what: str, at_s: float | None = None) -> float:
        """Something happens, now unless another moment is named; gives when."""
        mark = Mark(self.at_s if at_s is None else at_s, what)
        self.marks.append(mark)
        return mark.at_s

    def close(self) -> None:
        """Looks a last time and stops."""
        self._closed.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        if (pid := self.pid) is None:
            return
        memory, progress = resident(pid), self._progress
        if memory.anonymous_bytes:
            sizes = (memory.anonymous_bytes, memory.file_bytes)
            self.samples.append(Sample(self.at_s, *sizes, sum(progress.written), progress.received))
