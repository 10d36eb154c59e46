"""How many cores this process may use."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """The cores it is bound to or, where that is less, the whole ones of a container's CPU quota;
    at least one. See cpu.max and cpu.cfs_quota_us in the Linux kernel's documentation of cgroups.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([bound or 1, *(int(cores) for cores in _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """The quotas, in cores, of this process's group and of all above it."""
    for controllers, path in _groups(own):
        root = cgroups if not controllers else cgroups / "cpu"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            if (quota := _quota(folder)) is not None:
                yield quota


def _groups(own: Path) -> Iterator[tuple[str, str]]:
    """Of version 2, which has no names of controllers, and of version 1's for CPU."""
    yield "", "/"
    yield "cpu", "/"
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers or "cpu" in controllers.split(","):
            yield controllers, path


def _quota(folder: Path) -> float | None:
    """In cores; None where there is none, or it cannot be read."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
