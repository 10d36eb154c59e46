"""A wheel does not read blocks without used slots, and still finds everything."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from storage.folder import Files
from storage.wheel import wheel as timer_wheel
from storage.wheel.wheel import BLOCK_SLOTS, SLOT, TimerWheel, map_wheel

SLOTS = 10 * BLOCK_SLOTS + 7
NEVER_USED = range(3 * BLOCK_SLOTS, 8 * BLOCK_SLOTS)


def store(wheel: TimerWheel, slot: int, records: int = 1) -> None:
    heads = np.array([[slot, 0, records]])
    wheel.store(np.array([slot % wheel.slots]), heads if records else 0 * heads)


def begun_in(wheel: TimerWheel, first: int, last: int) -> list[int]:
    slots = range(first, min(last + 1, first + wheel.slots))
    cells = {slot: wheel.cells[slot % wheel.slots] for slot in slots}
    return [s % wheel.slots for s, cell in cells.items() if cell["count"] and cell["time"] <= last]


def test_a_new_wheel_has_nothing_to_read(tmp_path: Path) -> None:
    wheel = map_wheel(tmp_path / "wheel", SLOTS, Files())
    wheel.cells = np.zeros(0, SLOT)  # any read fails
    assert wheel.next_touched(0) == SLOTS
    assert wheel.next_slot(0, 100 * SLOTS, {}) is None


@pytest.mark.parametrize("slot", [0, 1, BLOCK_SLOTS - 1, BLOCK_SLOTS, 9 * BLOCK_SLOTS, SLOTS - 1])
def test_what_was_stored_is_found_in_the_file_again(tmp_path: Path, slot: int) -> None:
    store(map_wheel(tmp_path / "wheel", SLOTS, Files()), slot)
    wheel = map_wheel(tmp_path / "wheel", SLOTS, Files())
    assert wheel.held().tolist() == wheel.used().tolist() == [slot]
    assert wheel.next_slot(0, SLOTS, {}) == slot
    assert wheel.next_slot(slot + 1, slot + SLOTS - 1, {}) is None


@pytest.mark.parametrize("place", [0, BLOCK_SLOTS, 2 * BLOCK_SLOTS - 1, SLOTS - 1])
def test_the_first_and_the_last_slot_of_a_block_are_looked_at(place: int) -> None:
    blocks = np.zeros(-(-SLOTS // BLOCK_SLOTS), np.bool_)
    wheel = TimerWheel(np.zeros(SLOTS, SLOT), Files(), blocks)
    store(wheel, SLOTS + place)
    assert wheel.next_slot(0, 2 * SLOTS, {}) == SLOTS + place
    assert wheel.next_slot(SLOTS, 2 * SLOTS, {}) == SLOTS + place
    assert wheel.next_slot(SLOTS + place, SLOTS + place, {}) == SLOTS + place


@pytest.mark.parametrize("seed", range(20))
def test_blocks_that_were_never_used_change_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_wheel, "LAST_WINDOW_SLOTS", 5)
    chance = Random(seed)
    wheel = map_wheel(tmp_path / "wheel", SLOTS, Files())
    whole = TimerWheel(np.zeros(SLOTS, SLOT), Files())
    for _ in range(30):
        slot = chance.choice([n for n in range(2 * SLOTS) if n % SLOTS not in NEVER_USED])
        records = chance.randrange(3)
        store(wheel, slot, records)
        store(whole, slot, records)
        first = chance.randrange(2 * SLOTS)
        last = first + chance.choice([0, 10, SLOTS, 3 * SLOTS])
        assert wheel.next_slot(first, last, {}) == whole.next_slot(first, last, {})
        assert wheel.held().tolist() == whole.held().tolist()
        assert wheel.used().tolist() == whole.used().tolist()
        assert wheel.begun_in(first, last) == begun_in(whole, first, last)
        for mine, others in zip(wheel.begun_from(first), whole.begun_from(first), strict=True):
            assert mine.tolist() == others.tolist()
    assert wheel.next_touched(NEVER_USED.start) >= NEVER_USED.stop


def test_a_file_system_that_cannot_tell_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "no such thing here")

    monkeypatch.setattr(os, "lseek", refuse)
    wheel = map_wheel(tmp_path / "wheel", SLOTS, Files())
    assert wheel.next_touched(NEVER_USED.start) == NEVER_USED.start


def test_a_wheel_with_little_in_it_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "wheel"
    wheel = map_wheel(path, 7 * 86_400, Files())
    before_kib = resident_kib(path)
    assert wheel.change_of_sum(np.array([5]), np.array([[5, 0, 1]])) > 0
    store(wheel, 5)
    now_slot = 1_700_000_000
    assert wheel.begun_in(0, now_slot) == [5], "as all slots of a new store are closed"
    assert resident_kib(path) <= before_kib + 1_024


@pytest.mark.parametrize("is_used", [True, False])
def test_who_touches_one_slot_does_not_have_the_system_read_on(
    tmp_path: Path, is_used: bool
) -> None:
    path = tmp_path / "wheel"
    first = map_wheel(path, 7 * 86_400, Files())
    if is_used:
        store(first, 5 * BLOCK_SLOTS)
    del first
    wheel = map_wheel(path, 7 * 86_400, Files())
    assert "rr" in mapping_of(path)["VmFlags"].split(), "MADV_RANDOM"
    assert wheel.held().tolist() == [5 * BLOCK_SLOTS] * is_used


class Advised:
    """A mapped file that notes or refuses advice."""

    def __init__(self, error: OSError | None = None) -> None:
        self.ranges: list[range] = []
        self._error = error

    def madvise(self, advice: int, start: int, size_bytes: int) -> None:
        if self._error is not None:
            raise self._error
        assert advice == mmap.MADV_WILLNEED
        self.ranges.append(range(start, start + size_bytes))


@pytest.mark.parametrize("slot", [0, BLOCK_SLOTS, 3 * BLOCK_SLOTS + 5, SLOTS - 1])
def test_before_all_used_slots_are_read_the_system_is_told_of_their_pages_alone(slot: int) -> None:
    mapped, blocks = Advised(), np.zeros(-(-SLOTS // BLOCK_SLOTS), np.bool_)
    wheel = TimerWheel(np.zeros(SLOTS, SLOT), Files(), blocks, cast(Any, mapped))
    store(wheel, slot)
    assert wheel.held().tolist() == [slot]
    (told,) = mapped.ranges
    assert told.start % mmap.PAGESIZE == 0
    assert slot * SLOT.itemsize in told
    assert len(told) <= BLOCK_SLOTS * SLOT.itemsize + mmap.PAGESIZE
    assert told.stop <= SLOTS * SLOT.itemsize


def test_a_system_that_takes_no_advice_is_read_all_the_same() -> None:
    refusing = Advised(OSError(errno.EINVAL, "no such advice"))
    wheel = TimerWheel(np.zeros(SLOTS, SLOT), Files(), mapped=cast(Any, refusing))
    store(wheel, 7)
    assert wheel.held().tolist() == [7]


def resident_kib(path: Path) -> int:
    return int(mapping_of(path)["Rss"].split()[0])


def mapping_of(path: Path) -> dict[str, str]:
    _, _, behind = Path("/proc/self/smaps").read_text().partition(f"{path}\n")
    found: dict[str, str] = {}
    for line in behind.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name, value)
    return found
