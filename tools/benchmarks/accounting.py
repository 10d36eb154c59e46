"""CPU time and memory of each process, read from /proc (Linux only)."""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def process_tree(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        for children in (_PROC / str(parent) / "task").glob("*/children"):
            pids.extend(int(child) for child in _text(children).split())
    return pids


def only_child() -> int:
    """Return the only child process of this process. Return 0 if /proc is not available."""
    return next(iter(process_tree(os.getpid())[1:]), 0)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process and its children."""
    return sum(_own_cpu_s(member) for member in process_tree(pid))


def anonymous_bytes(pid: int) -> int:
    """Return the resident anonymous memory of a process and its children, without mapped files."""
    return sum(_own_anonymous_bytes(member) for member in process_tree(pid))


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory. `file_bytes` are pages of mapped files. The kernel can drop these pages."""

    anonymous_bytes: int
    file_bytes: int


def resident(pid: int) -> Resident:
    counted = [_own_resident(member) for member in process_tree(pid)]
    return Resident(sum(one[0] for one in counted), sum(one[1] for one in counted))


def disk_bytes(folder: Path) -> int:
    """Return the bytes on disk below a folder. Holes in sparse files do not count."""
    total_bytes = 0
    for path in folder.rglob("*"):
        try:
            total_bytes += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total_bytes


@dataclass(frozen=True, slots=True)
class DiskTraffic:
    """Bytes that one process read from disk, and bytes of file pages that it changed. Memory-mapped
    reads and writes are included. The kernel counts whole pages. It counts a page once for all
    changes before the page is written to disk. It also counts pages of a file that is deleted
    before they are written. NaN means that the system does not report the number. Files in a
    tmpfs count as 0."""

    read_bytes: float
    written_bytes: float


def disk_traffic(pid: int) -> DiskTraffic:
    lines = (line.split(": ") for line in _text(_PROC / str(pid) / "io").splitlines())
    counted = {name: float(value) for name, value in lines}
    return DiskTraffic(counted.get("read_bytes", math.nan), counted.get("write_bytes", math.nan))


@dataclass(frozen=True, slots=True)
class Bill:
    cpu_s: dict[str, float]
    other_cores: float

    def us_per_record(self, records: int) -> dict[str, float]:
        return {name: round(used / records * 1e6, 2) for name, used in self.cpu_s.items()}


class Meter:
    """Counter of the CPU time that named processes and the machine use after its creation."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before_s = {name: cpu_s(pid) for name, pid in pids.items()}
        self._busy_before_s = _machine_busy_s()
        self._started_s = time.monotonic()

    def bill(self, finished: dict[str, float]) -> Bill:
        """Return the CPU seconds since this meter was created. `finished` adds the CPU seconds of
        processes that measured themselves."""
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
    """Return the user, nice, system, irq and softirq time of all cores."""
    fields = _text(_PROC / "stat").partition("\n")[0].split()[1:]
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / _TICKS_PER_S if fields else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
