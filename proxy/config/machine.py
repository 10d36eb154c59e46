"""Cores, memory and disk of the machine, and the limits for the proxy's use of them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.config.values import shown_size
from proxy.errors import DiskTooSmall

# Cores of this process.

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Return the number of cores that affinity and container quota allow. At least 1.

    Source: cpu.max and cpu.cfs_quota_us in the Linux kernel's documentation of cgroups.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([bound or 1, *(int(cores) for cores in _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    for controllers, path in _groups(own):
        root = cgroups if not controllers else cgroups / "cpu"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            if (quota := _quota(folder)) is not None:
                yield quota


def _groups(own: Path) -> Iterator[tuple[str, str]]:
    """Yield controllers and path of each cgroup for CPU. In cgroup v2 the controllers are empty."""
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
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


# A worker's memory budget (setting `memory.per_worker`).

MIB: Final = 2**20
LEAST_BYTES: Final = 64 * MIB
QUEUE_SETTINGS: Final = {"queued.max.messages.kbytes": 1024, "fetch.max.bytes": 1}
"""librdkafka's setting for consumer memory -> bytes of the setting's unit."""
MOST_QUEUE_BYTES: Final = 2**30
MOST_FETCH_BYTES: Final = 50 * MIB
"""librdkafka's default. Larger answers do not help, and librdkafka rejects some larger values."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Shares of one worker's budget, in bytes."""

    memtables: int
    """If all memtables together use more than this, the largest is written to disk."""
    most_memtables: int
    """If all memtables together use more than this, no records are fetched."""
    transaction: int
    """Bytes of the bodies in one transaction. Memory holds up to six copies of these bodies."""
    queue: int
    """Share of librdkafka's queue. Records taken from it and not yet stored may use as much."""
    fetch: int
    """Share of one fetch answer of one broker."""


def memory_shares(budget_bytes: int, kafka: Mapping[str, str]) -> MemoryShares:
    """Divide the budget, less the queues that `kafka` sets. Raises ValueError if it is low."""
    own_bytes = sum(
        int(kafka[name]) * unit_bytes
        for name, unit_bytes in QUEUE_SETTINGS.items()
        if kafka.get(name, "").isdecimal()
    )
    least_bytes = LEAST_BYTES + own_bytes
    if budget_bytes < least_bytes:
        why = f" ({', '.join(QUEUE_SETTINGS)} of `kafka` included)" if own_bytes else ""
        raise ValueError(
            "per_worker is less than a worker needs: set it to at least "
            f"{-(-least_bytes // MIB)}MiB{why}"
        )
    sixteenth = (budget_bytes - own_bytes) // 16
    return MemoryShares(
        memtables=4 * sixteenth,
        most_memtables=6 * sixteenth,
        transaction=sixteenth,
        queue=min(sixteenth, MOST_QUEUE_BYTES),
        fetch=min(sixteenth // 2, MOST_FETCH_BYTES),
    )


# Disk space that new records must leave free (docs/operations/sizing.md#limits-on-what-may-wait).

AUTO_BYTES: Final = 256 << 20
AUTO_SHARE: Final = 20
"""`auto` is the smaller of AUTO_BYTES and 1/AUTO_SHARE of the disk."""
SLACK_SHARE: Final = 8
"""Reading resumes when the reserve plus 1/SLACK_SHARE of it is free."""


class DiskReserve:
    """Compares free disk space with the reserve `wanted_bytes`. None: `auto`. 0: no reserve."""

    def __init__(self, wanted_bytes: int | None) -> None:
        self._wanted_bytes = wanted_bytes
        self.is_short = False

    def of(self, size_bytes: int) -> int:
        if self._wanted_bytes is not None:
            return self._wanted_bytes
        return min(AUTO_BYTES, size_bytes // AUTO_SHARE)

    def enough(self, size_bytes: int) -> int:
        """Return how many bytes must be free to resume reading. This is more than the reserve."""
        reserve_bytes = self.of(size_bytes)
        return reserve_bytes + reserve_bytes // SLACK_SHARE

    def observe(self, size_bytes: int, free_bytes: int) -> None:
        wanted_bytes = self.enough(size_bytes) if self.is_short else self.of(size_bytes)
        self.is_short = free_bytes < wanted_bytes

    def refuse_too_small(self, data_dir: Path, size_bytes: int, partition_bytes: int) -> None:
        """Raise DiskTooSmall if an empty disk lacks room for the reserve and one partition."""
        if self.enough(size_bytes) + partition_bytes > size_bytes:
            sizes = (size_bytes, self.of(size_bytes), partition_bytes)
            raise DiskTooSmall(str(data_dir), *map(shown_size, sizes))
