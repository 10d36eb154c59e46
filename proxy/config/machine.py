"""What the machine gives: cores, memory, disk."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.config.values import shown_size
from proxy.errors import DiskReserveTooLarge

# How many cores this process may use.

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


# How a worker's memory budget (setting `memory.per_worker`) is shared out.

MIB: Final = 2**20
LEAST_BYTES: Final = 64 * MIB
QUEUE_SETTINGS: Final = {"queued.max.messages.kbytes": 1024, "fetch.max.bytes": 1}
"""What librdkafka holds of records that are to be consumed, in units of so many bytes."""
MOST_QUEUE_BYTES: Final = 2**30
MOST_FETCH_BYTES: Final = 50 * MIB
"""Larger answers than librdkafka asks for by itself help nobody, and it refuses some."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Bytes of one worker's budget, in sixteenths of it:

    memtables (4): beyond that the heaviest is written out; most_memtables (6): and beyond that
    nothing is fetched. transaction (1): bodies of the records that one transaction holds, which are
    in memory up to six times on their way. queue (1): fetched and not consumed yet; as much again
    has been consumed and is not stored yet. fetch (1/2): one answer of one broker.
    """

    memtables: int
    most_memtables: int
    transaction: int
    queue: int
    fetch: int


def memory_shares(budget_bytes: int, kafka: Mapping[str, str]) -> MemoryShares:
    """What `kafka` sets of queues by itself counts first; the rest is shared out.

    Raises ValueError when that is too little.
    """
    own_bytes = sum(
        int(kafka[name]) * unit_bytes
        for name, unit_bytes in QUEUE_SETTINGS.items()
        if kafka.get(name, "").isdecimal()
    )
    least_bytes = LEAST_BYTES + own_bytes
    if budget_bytes < least_bytes:
        why = f" ({', '.join(QUEUE_SETTINGS)} of `kafka` included)" if own_bytes else ""
        raise ValueError(
            "per_worker is less than a worker needs: give it at least "
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


# How much of the disk under `data_dir` is left free of new records
# (docs/operations/sizing.md#limits-on-what-may-wait).

AUTO_BYTES: Final = 256 << 20
AUTO_SHARE: Final = 20
"""`auto` is the smaller of so many bytes, and one part in so many of the disk."""
SLACK_SHARE: Final = 8
"""One part in so many of the reserve has to be free beyond it before reading goes on."""


class DiskReserve:
    """Whether the disk has less left than is to be left free; handed the numbers, it only decides.

    `wanted_bytes`: None is `auto`, 0 none.
    """

    def __init__(self, wanted_bytes: int | None) -> None:
        self._wanted_bytes = wanted_bytes
        self.is_short = False

    def of(self, size_bytes: int) -> int:
        """The reserve on a disk of this size, in bytes."""
        if self._wanted_bytes is not None:
            return self._wanted_bytes
        return min(AUTO_BYTES, size_bytes // AUTO_SHARE)

    def enough(self, size_bytes: int) -> int:
        """What has to be free before reading goes on: more than the reserve, so that what is just
        given back does not fill it again at once."""
        reserve_bytes = self.of(size_bytes)
        return reserve_bytes + reserve_bytes // SLACK_SHARE

    def observe(self, size_bytes: int, free_bytes: int) -> None:
        """So much is free of so much."""
        wanted_bytes = self.enough(size_bytes) if self.is_short else self.of(size_bytes)
        self.is_short = free_bytes < wanted_bytes

    def refuse_unreachable(self, data_dir: Path, size_bytes: int) -> None:
        """Raise DiskReserveTooLarge where even an empty disk would not have enough."""
        if self.enough(size_bytes) > size_bytes:
            raise DiskReserveTooLarge(
                str(data_dir), shown_size(self.of(size_bytes)), shown_size(size_bytes)
            )
