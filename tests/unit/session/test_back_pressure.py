"""When fetching of a partition pauses and continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

from structlog.testing import capture_logs

from proxy.config.machine import DiskReserve
from proxy.config.settings import AdmissionSettings
from proxy.scheduling.shard import State
from proxy.session.limits import FULL_RETRY_MS, LOOK_EVERY_MS, BackPressure
from proxy.session.pending_limits import PendingLimits
from storage.errors import StorageFull

NOW_MS = 1_800_000_000_000


@dataclass
class Fetching:
    """Consumer that notes paused and resumed partitions."""

    said: list[tuple[str, list[int]]] = field(default_factory=list)

    def pause(self, partitions: Iterable[int]) -> None:
        self.said.append(("pause", sorted(partitions)))

    def resume(self, partitions: Iterable[int]) -> None:
        self.said.append(("resume", sorted(partitions)))


@dataclass
class Disk:
    """Free space of a disk of 1,000 bytes. `looks` counts the queries."""

    free_bytes: int = 1_000
    looks: int = 0
    is_gone: bool = False

    def space(self) -> tuple[int, int]:
        self.looks += 1
        if self.is_gone:
            raise FileNotFoundError(2, "No such file or directory")
        return 1_000, self.free_bytes


@dataclass
class PressedShard:
    backlog: list[object]
    state: State = State.READY
    waits_for_clock: bool = False


def a_back_pressure(disk: Disk | None = None) -> tuple[Fetching, BackPressure]:
    fetching = Fetching()
    return fetching, BackPressure(
        cast(Any, fetching),
        DiskReserve(400),
        (disk or Disk()).space,
        PendingLimits(AdmissionSettings()),
    )


def apply(
    pressure: BackPressure,
    *backlog: int,
    is_memory_exceeded: bool = False,
    state: State = State.READY,
) -> None:
    shards = {n: PressedShard([object()] * count, state) for n, count in enumerate(backlog, 1)}
    both = cast(Any, shards)
    pressure.apply(both, both, is_memory_exceeded=is_memory_exceeded)


def test_partition_is_paused_once_while_its_records_wait_and_resumed_once() -> None:
    fetching, pressure = a_back_pressure()
    for backlog in (0, 3, 2, 0, 0):
        apply(pressure, backlog)
    assert fetching.said == [("pause", [1]), ("resume", [1])]


def test_partition_whose_records_wait_holds_up_no_other() -> None:
    fetching, pressure = a_back_pressure()
    apply(pressure, 3, 0)
    assert fetching.said == [("pause", [1])]


def test_nothing_is_fetched_until_a_full_disk_has_space_again() -> None:
    fetching, pressure = a_back_pressure()
    pressure.disk_full(StorageFull(Path("run-1"), OSError(ENOSPC, "no space left")), NOW_MS)
    apply(pressure, 0, 0)
    assert not pressure.may_write(NOW_MS + FULL_RETRY_MS - 1)
    assert pressure.may_write(NOW_MS + FULL_RETRY_MS)
    apply(pressure, 0, 0)
    assert fetching.said == [("pause", [1, 2])], "it is full until the stores could write"
    pressure.disk_has_space()
    apply(pressure, 0, 0)
    assert fetching.said == [("pause", [1, 2]), ("resume", [1, 2])]


def test_nothing_is_fetched_while_memory_is_exceeded_and_what_waits_stays_paused_then() -> None:
    fetching, pressure = a_back_pressure()
    apply(pressure, 0, 0, is_memory_exceeded=True)
    apply(pressure, 0, 5, is_memory_exceeded=True)
    apply(pressure, 0, 5)
    apply(pressure, 0, 0)
    assert fetching.said == [("pause", [1, 2]), ("resume", [1]), ("resume", [2])]


def test_partition_given_up_is_resumed_for_the_time_when_it_comes_back() -> None:
    fetching, pressure = a_back_pressure()
    apply(pressure, 3)
    pressure.resume([1])
    apply(pressure, 3)
    assert fetching.said == [("pause", [1]), ("resume", [1]), ("pause", [1])]


def test_nothing_is_fetched_while_less_is_free_than_the_reserve() -> None:
    disk = Disk(free_bytes=399)
    fetching, pressure = a_back_pressure(disk)
    pressure.look_at_disk(NOW_MS)
    apply(pressure, 0)
    held = [pressure.is_disk_full]
    assert pressure.may_write(NOW_MS), "what has been read is still written and compacted"
    disk.free_bytes = 450
    pressure.look_at_disk(NOW_MS + LOOK_EVERY_MS)
    apply(pressure, 0)
    held.append(pressure.is_disk_full)
    assert (held, fetching.said) == ([True, False], [("pause", [1]), ("resume", [1])])


def test_a_partition_that_catches_up_is_read_on_below_the_reserve() -> None:
    fetching, pressure = a_back_pressure(Disk(free_bytes=0))
    pressure.look_at_disk(NOW_MS)
    apply(pressure, 0, state=State.REPLAYING)
    apply(pressure, 0, state=State.CATCHING_UP)
    assert fetching.said == []
    apply(pressure, 0)
    assert fetching.said == [("pause", [1])]


def test_the_disk_is_looked_at_once_a_second() -> None:
    disk = Disk()
    _, pressure = a_back_pressure(disk)
    for passed_ms in range(0, 2 * LOOK_EVERY_MS, 10):
        pressure.look_at_disk(NOW_MS + passed_ms)
    assert disk.looks == 2


def test_a_data_folder_that_is_gone_changes_nothing() -> None:
    disk = Disk(free_bytes=0)
    _, pressure = a_back_pressure(disk)
    pressure.look_at_disk(NOW_MS)
    disk.is_gone, disk.free_bytes = True, 1_000
    pressure.look_at_disk(NOW_MS + LOOK_EVERY_MS)
    assert pressure.is_disk_full


def test_a_full_disk_is_logged_once_and_its_end_too() -> None:
    _, pressure = a_back_pressure()
    full = StorageFull(Path("run-1"), OSError(ENOSPC, "no space left"))
    with capture_logs() as logs:
        for second in range(3):
            pressure.disk_full(full, NOW_MS + second * FULL_RETRY_MS)
        for _ in range(3):
            pressure.disk_has_space()
    assert [one["log_level"] for one in logs] == ["error", "info"]


def test_a_disk_that_is_full_and_below_its_reserve_is_held_until_neither_is() -> None:
    disk = Disk(free_bytes=0)
    fetching, pressure = a_back_pressure(disk)
    pressure.look_at_disk(NOW_MS)
    pressure.disk_full(StorageFull(Path("run-1"), OSError(ENOSPC, "no space left")), NOW_MS)
    apply(pressure, 0)
    pressure.disk_has_space()
    apply(pressure, 0)
    assert fetching.said == [("pause", [1])]
    disk.free_bytes = 1_000
    pressure.look_at_disk(NOW_MS + LOOK_EVERY_MS)
    apply(pressure, 0)
    assert fetching.said == [("pause", [1]), ("resume", [1])]


def test_while_taking_in_is_paused_only_what_catches_up_is_read_on() -> None:
    fetching, pressure = a_back_pressure()
    pressure.is_ingest_paused = True
    apply(pressure, 0, 0, state=State.CATCHING_UP)
    apply(pressure, 0, 0, state=State.REPLAYING)
    assert fetching.said == []
    apply(pressure, 0, 0)
    pressure.is_ingest_paused = False
    apply(pressure, 0, 1)
    assert fetching.said == [("pause", [1, 2]), ("resume", [1])]
