"""What each process cost: CPU time and memory, read from /proc (Linux; elsewhere unknown)."""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def process_tree(pid: int) -> list[int]:
    """A process and everything below it."""
    pids = [pid]
    for parent in pids:
        for children in (_PROC / str(parent) / "task").glob("*/children"):
            pids.extend(int(child) for child in _text(children).split())
    return pids


def only_child() -> int:
    """The one process that this one has started so far (0 where /proc does not tell)."""
    return next(iter(process_tree(os.getpid())[1:]), 0)


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, used so far by a process and those below it."""
    return sum(_own_cpu_s(member) for member in process_tree(pid))


def anonymous_bytes(pid: int) -> int:
    """Resident anonymous memory (mapped files apart) of a process and those below it."""
    return sum(_own_anonymous_bytes(member) for member in process_tree(pid))


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory in bytes: anonymous, and pages of mapped files, which can be dropped."""

    anonymous_bytes: int
    file_bytes: int


def resident(pid: int) -> Resident:
    """Of a process and those below it."""
    counted = [_own_resident(member) for member in process_tree(pid)]
    return Resident(sum(one[0] for one in counted), sum(one[1] for one in counted))


def disk_bytes(folder: Path) -> int:
    """Blocks that the files below a folder occupy (holes in sparse files cost nothing)."""
    total_bytes = 0
    for path in folder.rglob("*"):
        try:
            total_bytes += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total_bytes


@dataclass(frozen=True, slots=True)
class DiskTraffic:
    """Bytes that a process, all its threads together, has fetched from disks, by reading or through
    a mapping; and bytes of the pages of files that it has made dirty, by writing or through a
    mapping. The kernel counts a page whole, and once until it has been written out; what is deleted
    before that counts all the same. Not numbers where the system does not tell, 0 on a tmpfs."""

    read_bytes: float
    written_bytes: float


def disk_traffic(pid: int) -> DiskTraffic:
    """Of one process so far."""
    lines = (line.split(": ") for line in _text(_PROC / str(pid) / "io").splitlines())
    counted = {name: float(value) for name, value in lines}
    return DiskTraffic(counted.get("read_bytes", math.nan), counted.get("write_bytes", math.nan))


@dataclass(frozen=True, slots=True)
class Bill:
    """CPU seconds by process over one measurement.

    `other_cores` is the load of everything else on the machine, in cores: when it is not near
    zero, the figures are not the proxy's alone.
    """

    cpu_s: dict[str, float]
    other_cores: float

    def us_per_record(self, records: int) -> dict[str, float]:
        """CPU microseconds that each process spent per record."""
        return {name: round(used / records * 1e6, 2) for name, used in self.cpu_s.items()}


class Meter:
    """Starts counting when made: the CPU of named running processes, and of the machine."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before_s = {name: cpu_s(pid) for name, pid in pids.items()}
        self._busy_before_s = _machine_busy_s()
        self._started_s = time.monotonic()

    def bill(self, finished: dict[str, float]) -> Bill:
        """The cost since the start; `finished` adds processes that counted for themselves."""
        elapsed_s = time.monotonic() - self._started_s
        used = {name: cpu_s(pid) - self._before_s[name] for name, pid in self._pids.items()}
        used |= finished
        other_s = _machine_busy_s() - self._busy_before_s - sum(used.values())
        return Bill(used, round(max(other_s, 0.0) / elapsed_s, 2))


def _own_cpu_s(pid: int) -> float:
    fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def _own_anonymous_bytes(pid: int) -> int:
    for line in _text(_PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    return 0


def _own_resident(pid: int) -> tuple[int, int]:
    lines = (line.split() for line in _text(_PROC / str(pid) / "status").splitlines())
    kib = {words[0]: int(words[1]) for words in lines if words and words[0].startswith("Rss")}
    return kib.get("RssAnon:", 0) * 1024, kib.get("RssFile:", 0) * 1024


def _machine_busy_s() -> float:
    """User, nice, system, irq and softirq time of all cores."""
    fields = _text(_PROC / "stat").partition("\n")[0].split()[1:]
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / _TICKS_PER_S if fields else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
