"""After a reboot the wheel is compared at once. The log and body files are checked beside delivery
(storage/FORMAT.md#what-a-power-loss-does)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, read_checkpoint
from storage.store import Entry
from storage.tiered_store import TieredStore
from storage.wheel.inspection import BackgroundCheck
from storage.wheel.tier import CHECKED_SHARE, WheelTier
from storage.wheel.wheel import SLOT, WheelFiles, checks
from tests.unit.storage.shards import START_MS, TINY, committed, entries, opened, taken

ALL = 10**6
LAST = 2**62
COUNT = 150
WAITS_MS = (90, 400, 3_000)
MINUTE_MS = 60_000
ONE_STEP = CHECKED_SHARE
"""Budget that checks one record."""

Reboot = Callable[[], None]


@pytest.fixture
def reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reboot:
    boots = iter(range(10**6))
    place = tmp_path / "boot-id"
    monkeypatch.setattr("storage.folder.BOOT_ID", place)

    def start() -> None:
        place.write_text(f"boot {next(boots)}")

    start()
    return start


@pytest.fixture
def folder(tmp_path: Path, reboot: Reboot) -> Path:
    store = opened(tmp_path / "shard")
    draw = random.Random(7)
    made = entries([draw.randrange(400, 9_000) for _ in range(COUNT)])
    for start in range(0, COUNT, 30):
        store.put(made[start : start + 30])
        store.flush(start + 30)
    store.close()
    reboot()
    return tmp_path / "shard"


def reopened(folder: Path, next_offset: int = COUNT) -> TieredStore:
    return opened(folder, committed(next_offset=next_offset))


def files_of(store: TieredStore) -> WheelFiles:
    return cast(WheelTier, store._tier).files


def look_through(store: TieredStore) -> int:
    turns = 0
    while store.maintain(COUNT, ONE_STEP):
        turns += 1
    return turns


def states(folder: Path, next_offset: int = COUNT) -> list[str]:
    store = reopened(folder, next_offset)
    found = [store.report.state]
    try:
        look_through(store)
    except StoreDamaged:
        found.append("damaged")
    store.close()
    again = reopened(folder, next_offset)
    again.close()
    return [*found, again.report.state]


def test_an_intact_folder_is_looked_through_once(folder: Path) -> None:
    store = reopened(folder)
    assert look_through(store) > TINY.slots
    assert look_through(store) == 0
    assert len(taken(store, ALL)) == COUNT
    store.close()


@pytest.mark.usefixtures("reboot")
def test_without_a_restart_nothing_is_looked_through(tmp_path: Path) -> None:
    store = opened(tmp_path / "shard")
    store.put(entries([400]))
    store.flush(1)
    store.close()
    store = opened(tmp_path / "shard", committed(next_offset=1))
    assert look_through(store) == 0
    store.close()


def test_a_lost_page_of_the_log_is_found_long_before_its_records_are_due(folder: Path) -> None:
    path = min((folder / "log").glob("*.log"))
    data = path.read_bytes()
    path.write_bytes(bytes(400) + data[400:])
    assert states(folder) == ["reopened", "damaged", "put aside"]


def test_bodies_that_are_gone_are_found_long_before_they_are_due(folder: Path) -> None:
    for path in (folder / "bodies").iterdir():
        path.write_bytes(b"")
    assert states(folder) == ["reopened", "damaged", "put aside"]


def test_it_begins_anew_where_the_process_ends_before_it_is_over(folder: Path) -> None:
    for path in (folder / "bodies").iterdir():
        path.write_bytes(b"")
    store = reopened(folder)
    store.put(entries([9_500], first_offset=COUNT))
    store.flush(COUNT + 1)
    store.close()
    assert states(folder, COUNT + 1) == ["reopened", "damaged", "put aside"]


def test_once_it_is_over_checkpoints_name_this_boot(folder: Path) -> None:
    store = reopened(folder)
    look_through(store)
    store.put(entries([9_500], first_offset=COUNT))
    store.flush(COUNT + 1)
    store.close()
    store = reopened(folder, COUNT + 1)
    assert look_through(store) == 0
    store.close()


def test_what_is_full_is_written_beside_it(folder: Path) -> None:
    """Otherwise memory would fill up, and nothing more would be read."""
    store = reopened(folder)
    before = read_checkpoint(folder / CHECKPOINT).covered
    turns = 0
    while read_checkpoint(folder / CHECKPOINT).covered == before:
        first = COUNT + turns * TINY.memtable_entries
        store.put(entries([9_000] * TINY.memtable_entries, first_offset=first))
        assert store.maintain(first + TINY.memtable_entries, ONE_STEP)
        turns += 1
        assert turns < COUNT // 2
    store.close()


def test_a_step_is_bounded_however_long_a_chain_is(tmp_path: Path, reboot: Reboot) -> None:
    store = opened(tmp_path / "shard")
    for offset in range(40):
        store.put(entries([500], first_offset=offset))
        store.flush(offset + 1)
    store.close()
    reboot()
    store = opened(tmp_path / "shard", committed(next_offset=40))
    assert look_through(store) >= 40
    store.close()


def test_bodies_whose_time_passes_meanwhile_are_not_missed(tmp_path: Path, reboot: Reboot) -> None:
    store = opened(tmp_path / "shard")
    store.put(entries([200, 100 * MINUTE_MS + 300]))
    store.flush(2)
    store.close()
    reboot()
    store = opened(tmp_path / "shard", committed(next_offset=2))
    assert store.maintain(2, ONE_STEP)
    assert len(taken(store, MINUTE_MS)) == 1
    store.advance(START_MS + 2 * MINUTE_MS, LAST)
    store.flush(2)
    assert len(list((tmp_path / "shard" / "bodies").iterdir())) == 1
    look_through(store)
    assert len(taken(store, 200 * MINUTE_MS)) == 1
    store.close()


def test_bodies_of_what_has_ended_are_not_missed(tmp_path: Path, reboot: Reboot) -> None:
    """A power loss takes the end of a file, which nobody reads any more."""
    folder = tmp_path / "shard"
    store = opened(folder)
    store.put(entries([900]))
    store.flush(1)
    store.put(entries([500], first_offset=1))
    store.flush(2)
    assert len(taken(store, 600)) == 1
    store.flush(2)
    store.close()
    (path,) = (folder / "bodies").iterdir()
    path.write_bytes(path.read_bytes()[: len(b"value 0")])
    reboot()
    store = opened(folder, committed(500, 1, 0, 2))
    look_through(store)
    assert len(taken(store, ALL)) == 1
    store.close()


def test_slots_that_are_older_than_the_checkpoint_are_found_by_opening(
    tmp_path: Path, reboot: Reboot
) -> None:
    """One slot has a record less, the other one more, so the sum is right."""
    folder = tmp_path / "shard"
    store = opened(folder)
    store.put(entries([500, 300]))
    store.flush(2)
    before = np.frombuffer((folder / "wheel").read_bytes(), SLOT)
    store.put(entries([510], first_offset=2))
    assert len(taken(store, 350)) == 1
    store.advance(START_MS + 400, LAST)
    store.flush(3)
    store.put(entries([720], first_offset=3))
    store.flush(4)
    store.close()
    now = np.memmap(folder / "wheel", SLOT, "r+")
    closed = read_checkpoint(folder / CHECKPOINT).closed
    changed = np.flatnonzero((before != now) & (before["count"] > 0))
    assert now["count"][changed].sum() == before["count"][changed].sum() == 2
    now[changed] = before[changed]
    now["time"][changed] = np.maximum(now["time"][changed], closed)
    now["check"] = checks(now)
    reboot()
    store = opened(folder, committed(400, LAST, 0, 4))
    assert store.report.detail == "slots of the wheel differ from the checkpoint"
    store.close()


def test_slots_are_compared_one_by_one_and_not_by_what_they_hold_together(tmp_path: Path) -> None:
    """One slot has a record more, another one less: the sum equals the checkpoint's."""
    folder = tmp_path / "shard"
    store = opened(folder)
    for first in range(0, 6, 2):
        store.put(entries([500, 700], first_offset=first))
        store.flush(first + 2)
    store.put(entries([100], first_offset=6))
    store.flush(7)
    store.close()
    cells = np.memmap(folder / "wheel", SLOT, "r+")
    more, less = np.flatnonzero(cells["count"] == 3)
    cells["count"][more], cells["count"][less] = 4, 2
    cells["check"] = checks(cells)
    store = opened(folder, committed(next_offset=7))
    assert store.report.detail == "slots of the wheel differ from the checkpoint"
    store.close()


def test_an_older_run_at_the_place_of_another_one_is_damage_before_its_due(
    tmp_path: Path, reboot: Reboot
) -> None:
    """A kill before its checkpoint cut off the older run. The page of the newer run was lost. The
    watermark must not pass its entries."""
    folder, cut, kept = tmp_path / "shard", tmp_path / "cut", tmp_path / "shard"
    for place, due_ms in ((cut, 300), (kept, 500)):
        store = opened(place)
        store.put(entries([due_ms]))
        store.flush(1)
        store.put(entries([710], first_offset=1))
        store.flush(2)
        store.put(entries([720], first_offset=2))
        store.flush(3)
        store.close()
    old, new = (min((place / "log").glob("*.log")) for place in (cut, kept))
    new.write_bytes(old.read_bytes()[:64] + new.read_bytes()[64:])
    reboot()
    store = opened(folder, committed(next_offset=3))
    assert store.report.state == "reopened"
    with pytest.raises(StoreDamaged, match="belongs to another slot"):
        store.due(START_MS + 600, 9)
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_what_happens_meanwhile_is_no_damage(tmp_path: Path, reboot: Reboot, seed: int) -> None:
    draw = random.Random(seed)
    folder, next_offset, now_ms = tmp_path / "shard", 0, 0
    wanted: list[Entry] = []
    found: list[Entry] = []
    for _ in range(8):
        reboot()
        store = opened(folder, committed(now_ms, LAST, 0, next_offset))
        assert store.report.state != "put aside"
        store.put([one for one in wanted if one[1] >= store.covered and one not in found])
        for _ in range(draw.randrange(3, 40)):
            made = entries([now_ms + draw.choice(WAITS_MS) + n for n in range(5)], next_offset)
            next_offset += len(made)
            wanted += made
            store.put(made)
            store.maintain(next_offset, draw.choice([4, 16, 64]))
            now_ms += draw.choice([0, 30, 200])
            found += taken(store, now_ms)
            store.advance(START_MS + now_ms, LAST)
        store.close()
    reboot()
    store = opened(folder, committed(now_ms, LAST, 0, next_offset))
    store.put([one for one in wanted if one[1] >= store.covered and one not in found])
    look_through(store)
    found += taken(store, ALL)
    assert sorted(found) == sorted(wanted)
    store.close()


def test_chains_that_begin_soon_come_first(folder: Path) -> None:
    store = opened(folder, committed(watermark_ms=500, cursor=LAST, next_offset=COUNT))
    held = files_of(store).wheel.held()
    now = (START_MS + 500) // TINY.precision_ms
    places = BackgroundCheck(files_of(store), store._ledger)._places
    assert places.tolist() == sorted(held.tolist(), key=lambda place: (place - now) % TINY.slots)
    store.close()
