"""What every scheduler under comparison can do, so that one set of scenarios drives them all."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.benchmarks.accounting import Resident, process_tree, resident
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import Load, Loaded
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import Arrivals, ReadOrder

STOPPED_WITHIN_S = 60
SCHEDULER = "scheduler"
"""The name, among `Scheduler.pids`, of the process that keeps what waits."""


class PeerMissing(Exception):
    """A peer cannot be had on this machine: one sentence why, for whoever asked for it."""


class Scheduler(Protocol):
    """One scheduler with its broker; everything it keeps lies in a folder of its own."""

    address: str
    ingress: str

    @property
    def pids(self) -> Mapping[str, int]:
        """Its processes: `scheduler`, and what it needs beside it."""

    def start(self) -> None:
        """Starts what `stop` or `kill` ended, and returns at once."""

    def wait_ready(self) -> None:
        """Returns when it takes records."""

    def stop(self) -> None:
        """Ends the process that schedules as an operator would; returns when it is gone."""

    def kill(self) -> None:
        """SIGKILL to the same."""

    def create(self, topic: str) -> None:
        """Makes a topic for delivered records."""

    def send(self, load: Load) -> Job[Loaded]:
        """Sends the load in a process of its own."""

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        """Reads in a process of its own."""

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Returns when all that was sent is in its schedule; False from one that cannot tell."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A scheduler that can be opened in a folder; `version` raises `PeerMissing`.

    A relay `waits` not: its records are due at once, and nothing can be pending in it.
    """

    title: str
    version: Callable[[], str]
    open: Callable[[Path], AbstractContextManager[Scheduler]]
    waits: bool = True


def memory(scheduler: Scheduler) -> dict[str, Resident]:
    """Resident memory by process."""
    return {name: resident(pid) for name, pid in scheduler.pids.items()}


def java_pid(main_class: str) -> int:
    """The JVM below this process that runs a class; BenchmarkError when there is none."""
    for pid in process_tree(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(b"/java") and main_class.encode() in words:
            return pid
    raise BenchmarkError(f"No JVM runs {main_class} any more: see its log in the folder.")
