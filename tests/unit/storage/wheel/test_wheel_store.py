"""The store as the pipeline uses it."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from storage.errors import StorageFull, StoreLocked, StoreMismatch
from storage.folder import Files
from storage.options import Options
from storage.tiered_store import TieredStore
from storage.wheel.tier import SLICE_ENTRIES, WheelTier
from tests.unit.storage.shards import (
    START_MS,
    TINY,
    committed,
    entries,
    entry,
    opened,
    taken,
)

LAP_MS = TINY.precision_ms * TINY.slots
YEAR_MS = 366 * 86_400_000


def tier_of(store: TieredStore) -> WheelTier:
    assert isinstance(store._tier, WheelTier)
    return store._tier


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shard"


def test_entries_come_in_due_order_and_to_the_millisecond(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([57, 12, 12, 99]))
    assert [e[:2] for e in store.due(START_MS + 57, 10).entries] == [
        (START_MS + 12, 1),
        (START_MS + 12, 2),
        (START_MS + 57, 0),
    ]
    assert store.next_fires_ms(START_MS + 11) is None
    assert store.next_fires_ms(START_MS + 12) == START_MS + 12


def test_looking_takes_nothing_away(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([1, 2, 3]))
    store.flush(3)
    assert (
        store.due(START_MS + 3, 2).entries == store.due(START_MS + 3, 2).entries == entries([1, 2])
    )
    assert store.pending() == 3


def test_entries_in_memory_and_on_disk_merge_in_order(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([10, 30, 50]))
    store.flush(3)
    assert len(store.due(START_MS + 35, 10).entries) == 2
    store.put(entries([20, 40], first_offset=3))
    assert [e[1] for e in taken(store, 100, limit=2)] == [0, 3, 1, 4, 2]


def test_an_entry_flushed_into_a_slot_already_open_is_seen(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([50, 90]))
    store.flush(2)
    assert [e[1] for e in store.due(START_MS + 60, 10).entries] == [0]
    store.put(entries([55, 10], first_offset=2))
    store.flush(4)
    assert [e[1] for e in taken(store, 99)] == [3, 0, 2, 1]


def test_a_newcomer_due_before_what_was_looked_at_comes_first(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([50]))
    assert store.due(START_MS + 60, 10).entries == entries([50])
    store.put(entries([40], first_offset=1))
    assert [e[1] for e in store.due(START_MS + 60, 10).entries] == [1, 0]


def test_a_slot_opened_while_it_is_being_written_shows_each_entry_once(folder: Path) -> None:
    store = opened(folder)
    made = entries([10 * at for at in range(1, 61)])
    store.put(made)
    while not tier_of(store).files.wheel.cells["count"].any():
        store.maintain(60, 1)
    assert store._immutable is not None
    assert store.due(START_MS + 600, 100).entries == made
    store.flush(60)
    assert taken(store, 600) == made
    assert store.pending() == 0


def test_memory_is_not_covered_by_a_checkpoint_that_only_closes_slots(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([10, 5000]))
    store.flush(2)
    store.put(entries([6000], first_offset=2))
    taken(store, 1000)
    store.advance(START_MS + 1000, 2)
    while store.maintain(3, 10):
        pass
    assert tier_of(store).files.checkpoint.closed == (START_MS + 1000) // TINY.precision_ms
    assert store.covered == 2


def test_entries_far_beyond_the_span_wait_their_laps(folder: Path) -> None:
    store = opened(folder)
    far = entries([LAP_MS * lap + 50 for lap in range(5)] + [YEAR_MS])
    store.put(far)
    store.flush(6)
    for now_ms in range(0, 6 * LAP_MS, 70):
        for batch in iter(lambda now_ms=now_ms: store.due(START_MS + now_ms, 10).entries, []):  # type: ignore[misc]
            assert START_MS + now_ms - batch[0][0] < 70
            store.advance(*batch[-1][:2])
        store.advance(START_MS + now_ms, 6)
        store.maintain(6, 10)
    assert store.pending() == 1
    assert taken(store, YEAR_MS) == far[-1:]


def test_what_was_flushed_is_there_after_a_restart(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([100, 200, 5000, 300]))
    store.flush(4)
    store.close()
    store = opened(folder, committed(next_offset=4))
    assert (store.report.state, store.covered, store.pending()) == ("reopened", 4, 4)
    assert store.pending_by_target() == ({"orders": 4}, 0)
    assert [e[1] for e in taken(store, 9999)] == [0, 1, 3, 2]


def test_what_was_not_flushed_is_not_covered(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([100, 200]))
    store.flush(2)
    store.put(entries([150], first_offset=2))
    store.close()
    store = opened(folder, committed(next_offset=3))
    assert (store.covered, store.pending()) == (2, 2)


def test_entries_not_committed_are_never_covered(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([10 * at for at in range(1, 41)]))
    for _ in range(50):
        store.maintain(next_offset=15, budget_entries=100)
    store.flush(next_offset=15)
    assert store.covered <= 15
    store.maintain(next_offset=40, budget_entries=1000)
    assert store.covered == 40


def test_entries_that_ended_elsewhere_meanwhile_are_forgotten(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([100, 200, 200, 300, 9000]))
    store.flush(5)
    store.close()
    store = opened(folder, committed(watermark_ms=200, cursor=1, next_offset=5))
    while store.maintain(5, 10):
        pass
    store.flush(5)
    assert store.pending() == 3
    assert store.pending_by_target() == ({"orders": 3}, 0)
    assert [e[1] for e in taken(store, 9999)] == [2, 3, 4]


def test_entries_below_the_brokers_floor_have_ended(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([500, 600, 700]))
    store.flush(3)
    store.close()
    store = opened(folder, committed(floor=2, next_offset=3))
    assert store.floor(3) == 2
    assert [e[1] for e in taken(store, 9999)] == [2]
    assert store.pending() == 0


def test_offsets_that_were_reset_put_the_folder_aside(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([500, 600, 700]))
    store.flush(3)
    store.close()
    store = opened(folder, committed(next_offset=2))
    assert store.report.state == "put aside"
    assert "reset" in store.report.detail
    assert store.report.aside == folder.with_name("shard.broken-1")
    assert (store.covered, store.pending()) == (0, 0)


def test_of_folders_put_aside_two_are_kept(folder: Path) -> None:
    for _ in range(4):
        store = opened(folder, committed(next_offset=5))
        store.put(entries([500], first_offset=5))
        store.flush(6)
        store.close()
        opened(folder, committed(next_offset=0)).close()
    aside = sorted(path.name for path in folder.parent.glob("*.broken-*"))
    assert aside == ["shard.broken-3", "shard.broken-4"]


def test_a_folder_in_use_is_refused_until_it_is_closed(folder: Path) -> None:
    store = opened(folder)
    with pytest.raises(StoreLocked, match="another process"):
        opened(folder)
    store.close()
    opened(folder).close()


@pytest.mark.parametrize("change", [{"slots": 31}, {"precision_ms": 501}, {"segment_bytes": 8192}])
def test_a_wheel_of_thirty_slots_does_not_open_with_thirty_one(
    folder: Path, change: dict[str, int]
) -> None:
    thirty = replace(TINY, precision_ms=500, slots=30)
    store = opened(folder, options=thirty)
    store.flush(0)
    store.close()
    other = replace(thirty, **change)
    with pytest.raises(StoreMismatch, match=next(iter(change))):
        opened(folder, options=other)
    store = opened(folder, options=other, rebuild=True)
    assert store.report.state == "put aside"
    store.close()


def test_entries_out_of_order_or_already_ended_are_refused(folder: Path) -> None:
    store = opened(folder)
    store.put(entries([100], first_offset=5))
    with pytest.raises(ValueError, match="was put after"):
        store.put([entry(200, 5)])
    store.advance(START_MS + 150, 6)
    with pytest.raises(ValueError, match="watermark"):
        store.put([entry(150, 6)])


class FullDisk(Files):
    """Files that take `room` writes until the disk is emptied."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes | memoryview, position: int) -> None:
        if self.room <= 0:
            super().write(fd, memoryview(data)[: len(data) // 3], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1
        super().write(fd, data, position)


def work_through(store: TieredStore, next_offset: int) -> None:
    while store.maintain(next_offset, 10):
        pass
    store.flush(next_offset)


@pytest.mark.parametrize("room", range(6))
def test_a_full_disk_loses_nothing_and_is_tried_again(folder: Path, room: int) -> None:
    files = FullDisk(room)
    store = opened(folder, files=files)
    made = entries([7 * at + 1 for at in range(60)])
    store.put(made)
    for _ in range(3):
        with pytest.raises(StorageFull, match="No space left"):
            work_through(store, next_offset=60)
        files.room = 0
        assert store.due(START_MS + YEAR_MS, 100).entries == made
    files.room = 10**9
    store.flush(60)
    store.close()
    store = opened(folder, committed(next_offset=60))
    assert store.covered == 60
    assert taken(store, YEAR_MS) == made


def test_a_checkpoint_that_could_not_be_written_forgets_no_target(folder: Path) -> None:
    store = opened(folder)
    store.put([entry(10, 0, "elsewhere"), entry(5000, 1)])
    store.flush(2)
    store.close()
    files = FullDisk(room=0)
    store = opened(folder, committed(watermark_ms=900, cursor=2, next_offset=2), files=files)
    for _ in range(2):
        with pytest.raises(StorageFull):
            store.flush(2)
    files.room = 100
    store.flush(2)
    assert store.pending_by_target() == ({"orders": 1}, 0)


def test_files_of_what_has_passed_are_deleted(folder: Path) -> None:
    store = opened(folder)
    for first in range(0, 3000, 20):
        at_ms = 40 * first
        store.put(entries([at_ms + 1 + 31 * at for at in range(20)], first_offset=first))
        for _ in range(5):
            store.maintain(first + 20, 30)
        taken(store, at_ms)
        store.advance(START_MS + at_ms, first)
    taken(store, YEAR_MS)
    store.advance(START_MS + YEAR_MS, 3000)
    store.flush(3000)
    assert store.pending() == 0
    assert len(list((folder / "log").iterdir())) <= 1
    assert list((folder / "bodies").iterdir()) == []


def test_thousands_of_passed_slots_are_closed_in_one_flush(folder: Path) -> None:
    """After an hour away nothing is written before the chains are closed."""
    count = 5000
    store = opened(folder, options=replace(TINY, slots=2 * count, memtable_entries=2 * count))
    store.put(entries([TINY.precision_ms * at for at in range(count)]))
    store.flush(count)
    last_ms = TINY.precision_ms * count
    assert len(taken(store, last_ms)) == count
    store.advance(START_MS + last_ms, count)
    store.flush(count)
    assert store.pending() == 0


def test_sparse_segments_are_copied_forward(folder: Path) -> None:
    store = opened(folder)
    offset = 0
    for turn in range(300):
        far = [YEAR_MS + turn] if turn % 10 == 0 else []
        dues_ms = [200 * turn + 150 + at for at in range(10)] + far
        store.put(entries(dues_ms, first_offset=offset))
        offset += len(dues_ms)
        for _ in range(6):
            store.maintain(offset, 30)
        taken(store, 200 * turn)
        store.advance(START_MS + 200 * turn, offset)
    taken(store, 200 * 300 + 1000)
    store.flush(offset)
    assert store.pending() == 30
    assert len(list((folder / "log").iterdir())) < 20
    assert len(taken(store, 2 * YEAR_MS)) == 30


def test_one_call_writes_no_more_than_a_slice_of_large_bodies(folder: Path) -> None:
    size_bytes, large = Options().slice_bytes, bytes(64 * 1024)
    store = opened(folder, options=Options(slots=8))
    many = [(START_MS + at, at, "orders", large) for at in range(4 * size_bytes // len(large))]
    store.put(many)
    store.request_flush()
    written = [_body_bytes(folder)]
    while store.maintain(len(many), SLICE_ENTRIES):
        written.append(_body_bytes(folder))
    assert _body_bytes(folder) >= len(many) * len(large)
    assert max(after - before for before, after in pairwise(written)) <= 2 * size_bytes
    store.close()


def _body_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if "bodies" in str(file))


def test_no_default_option_is_out_of_bounds() -> None:
    assert Options().run_records > 100_000
    with pytest.raises(ValueError, match="precision_ms"):
        Options(precision_ms=0)
    with pytest.raises(ValueError, match="segment_bytes"):
        Options(segment_bytes=10)


def test_ten_topics_with_five_messages_each_are_counted(folder: Path) -> None:
    store = opened(folder, options=replace(TINY, most_names=10))
    made = [entry(3000 + at, at, f"topic-{at % 10}") for at in range(50)]
    store.put(made)
    assert store.pending_by_target() == ({f"topic-{n}": 5 for n in range(10)}, 0)
    store.flush(50)
    assert store.pending_by_target() == ({f"topic-{n}": 5 for n in range(10)}, 0)
    assert taken(store, 4000) == made
    assert store.pending_by_target() == ({}, 0)
