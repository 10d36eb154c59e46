"""Interface of all compared schedulers."""

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
"""Name of the scheduling process in `Scheduler.pids`."""


class PeerMissing(Exception):
    """Peer that this machine cannot run, with the reason in one sentence."""


class Scheduler(Protocol):
    address: str
    ingress: str

    @property
    def pids(self) -> Mapping[str, int]:
        """The ids of the scheduler's processes by name."""

    def start(self) -> None:
        """Start again after `stop` or `kill`. Return before the scheduler is ready."""

    def wait_ready(self) -> None:
        """Wait until the scheduler accepts records."""

    def stop(self) -> None:
        """End the scheduling process as an operator would, and wait for its exit."""

    def kill(self) -> None:
        """Send SIGKILL to the scheduling process."""

    def create(self, topic: str) -> None:
        """Create a topic for delivered records."""

    def send(self, load: Load) -> Job[Loaded]:
        """Send the load in a process of its own."""

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        """Read in a process of its own."""

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Wait until all sent records are scheduled. Return False at once if the scheduler does not
        report this."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Scheduler that can be opened in a folder. `version` raises `PeerMissing` if this machine
    cannot run the scheduler. `waits` is false for a relay, which cannot delay records."""

    title: str
    version: Callable[[], str]
    open: Callable[[Path], AbstractContextManager[Scheduler]]
    waits: bool = True


def memory(scheduler: Scheduler) -> dict[str, Resident]:
    return {name: resident(pid) for name, pid in scheduler.pids.items()}


def java_pid(main_class: str) -> int:
    """Return the JVM below this process that runs a class. Raise BenchmarkError if none does."""
    for pid in process_tree(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(b"/java") and main_class.encode() in words:
            return pid
    raise BenchmarkError(f"No JVM runs {main_class} any more: see its log in the folder.")
