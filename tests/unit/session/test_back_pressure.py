"""When fetching of a partition stops, and when it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

from proxy.session.back_pressure import FULL_RETRY_MS, BackPressure
from storage.errors import StorageFull

NOW_MS = 1_800_000_000_000


@dataclass
class Fetching:
    """Whose partitions are paused and resumed."""

    said: list[tuple[str, int]] = field(default_factory=list)

    def pause(self, partition: int) -> None:
        self.said.append(("pause", partition))

    def resume(self, partition: int) -> None:
        self.said.append(("resume", partition))


@dataclass
class WaitingShard:
    waiting: list[object]
    waits_for_clock: bool = False


def a_back_pressure() -> tuple[Fetching, BackPressure]:
    fetching = Fetching()
    return fetching, BackPressure(cast(Any, fetching))


def apply(pressure: BackPressure, partition: int, waiting: int) -> None:
    pressure.apply(partition, cast(Any, WaitingShard([object()] * waiting)))


def test_partition_is_paused_once_while_its_records_wait_and_resumed_once() -> None:
    fetching, pressure = a_back_pressure()
    for waiting in (0, 3, 2, 0, 0):
        apply(pressure, 1, waiting)
    assert fetching.said == [("pause", 1), ("resume", 1)]


def test_partition_whose_records_wait_holds_up_no_other() -> None:
    fetching, pressure = a_back_pressure()
    apply(pressure, 1, 3)
    apply(pressure, 2, 0)
    assert fetching.said == [("pause", 1)]


def test_nothing_is_fetched_until_a_full_disk_has_space_again() -> None:
    fetching, pressure = a_back_pressure()
    pressure.disk_full(StorageFull(Path("run-1"), OSError(ENOSPC, "no space left")), NOW_MS)
    apply(pressure, 1, 0)
    assert not pressure.may_write(NOW_MS + FULL_RETRY_MS - 1)
    assert pressure.may_write(NOW_MS + FULL_RETRY_MS)
    apply(pressure, 1, 0)
    assert fetching.said == [("pause", 1)], "it is full until the stores could write"
    pressure.disk_has_space()
    apply(pressure, 1, 0)
    assert fetching.said == [("pause", 1), ("resume", 1)]


def test_partition_given_up_is_resumed_for_the_time_when_it_comes_back() -> None:
    fetching, pressure = a_back_pressure()
    apply(pressure, 1, 3)
    pressure.resume(1)
    apply(pressure, 1, 3)
    assert fetching.said == [("pause", 1), ("resume", 1), ("pause", 1)]
