"""Control groups (version 1) of a run, all with one name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = "kafka-delay-proxy-pods"
MOUNTS: Final = Path("/proc/mounts")
NEEDED: Final = {"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}
CONTROLLERS: Final = {*NEEDED, "blkio", "hugetlb", "net_cls", "net_prio", "perf_event", "rdma"}
PROCESSES: Final = "cgroup.procs"
CPU_SHARES: Final = 16 * 1024
"""Share of the processors for about 16 busy processes. By default a group counts as one process."""
END_WITHIN_S: Final = 30
LOOK_EVERY_S: Final = 0.1


class Hierarchy(NamedTuple):
    mounted: Path
    controllers: tuple[str, ...]
    """Controllers, or `name=…` of a hierarchy without one."""

    @property
    def group(self) -> Path:
        return self.mounted / NAME

    @property
    def options(self) -> str:
        """Mount options that show this hierarchy at another place."""
        named = any("=" in one for one in self.controllers)
        return ",".join(["none"] * named + [*self.controllers])


def hierarchies(mounts: str) -> Iterator[Hierarchy]:
    """Yield the hierarchies of version 1 from the text of /proc/mounts."""
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            named = [o for o in options.split(",") if o in CONTROLLERS or o.startswith("name=")]
            yield Hierarchy(Path(folder), tuple(named))


def missing(found: Iterable[Hierarchy]) -> set[str]:
    return NEEDED - {name for hierarchy in found for name in hierarchy.controllers}


def make(found: Iterable[Hierarchy], memory_bytes: int) -> None:
    """Make the groups. All processes in them share the memory."""
    for hierarchy in found:
        hierarchy.group.mkdir()
        if "cpuset" in hierarchy.controllers:
            for name in ("cpuset.cpus", "cpuset.mems"):
                (hierarchy.group / name).write_text((hierarchy.mounted / name).read_text())
        if "cpu" in hierarchy.controllers:
            (hierarchy.group / "cpu.shares").write_text(str(CPU_SHARES))
        if "memory" in hierarchy.controllers:
            (hierarchy.group / "memory.limit_in_bytes").write_text(str(memory_bytes))


def remove(found: Iterable[Hierarchy]) -> None:
    """Kill all processes in the groups, then remove the groups. Raise TimeoutError."""
    deadline = time.monotonic() + END_WITHIN_S
    groups = [hierarchy.group for hierarchy in found]
    while left := [group for group in groups if group.exists()]:
        for group in left:
            _remove(group)
        if time.monotonic() > deadline:
            raise TimeoutError(f"These control groups could not be removed: {left}")
        time.sleep(LOOK_EVERY_S)


def _remove(group: Path) -> None:
    inside = [path for path in group.rglob("*") if path.is_dir()]
    for folder in sorted([group, *inside], key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):
            for process in (folder / PROCESSES).read_text().split():
                os.kill(int(process), signal.SIGKILL)
        with suppress(OSError):
            folder.rmdir()
