"""A flush that fails before its checkpoint, and cannot be undone at once."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import StorageFull
from storage.folder import Files
from storage.opening import verify
from storage.options import RECORD_BYTES, Options
from storage.tiered_store import TieredStore
from storage.wheel.tier import WheelTier
from storage.wheel.wheel import WheelFiles
from tests.unit.storage.shards import START_MS, TINY, committed, entries, opened, taken

MINUTE_MS = 60_000
ROOMY = replace(TINY, precision_ms=1000, slots=2000, memtable_entries=75)
SLICED = replace(ROOMY, segment_bytes=64 * 1024, slice_bytes=300)
"""A step writes about 40 entries, and a segment holds many steps."""
THREE_A_MINUTE = [MINUTE_MS * (at // 3) + 1000 * (at % 3) + 1 for at in range(75)]


def files_of(store: TieredStore) -> WheelFiles:
    assert isinstance(store._tier, WheelTier)
    return store._tier.files


def reopened_at(
    folder: Path, watermark_ms: int, next_offset: int, options: Options = SLICED
) -> TieredStore:
    at = committed(watermark_ms, next_offset, 0, next_offset)
    store = opened(folder, at, options=options)
    assert (store.report.state, store.report.detail) == ("reopened", "")
    assert verify(folder).findings == []
    return store


def write_once(store: TieredStore, next_offset: int) -> None:
    """Write one checkpoint. After a second one, opening would skip everything before it."""
    while store.maintain(next_offset, 10):
        pass


def no_more_body_files_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    opens, left = os.open, [count]

    def refusing(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".body"):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EMFILE, "Too many open files")
        return opens(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)


def test_log_ends_at_the_checkpoint_though_bodies_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder, options=SLICED)
    store.put(entries(THREE_A_MINUTE))
    with monkeypatch.context() as patched:
        no_more_body_files_after(patched, 17)
        with pytest.raises(StorageFull, match="Too many open files"):
            write_once(store, 75)
    assert files_of(store).log.end == files_of(store).checkpoint.log_end == 0
    assert sum(file.stat().st_size for file in (folder / "bodies").iterdir()) == 0
    store.close()


def test_runs_of_a_flush_given_up_are_not_met_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder, options=SLICED)
    store.put(entries(THREE_A_MINUTE))
    with monkeypatch.context() as patched:
        no_more_body_files_after(patched, 17)
        with pytest.raises(StorageFull, match="Too many open files"):
            write_once(store, 75)
    ended = taken(store, 10 * MINUTE_MS - 1)
    store.advance(START_MS + 10 * MINUTE_MS - 1, 75)
    write_once(store, 75)
    store.close()
    store = reopened_at(folder, 10 * MINUTE_MS - 1, 75)
    assert ended + taken(store, 60 * MINUTE_MS) == entries(THREE_A_MINUTE)
    store.close()


class ReadOnlyForAWhile(Files):
    """Files that take `room` writes, then refuse writes and cuts until `room` is set again."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes | memoryview, position: int) -> None:
        self._refuse()
        self.room -= 1
        super().write(fd, data, position)

    def resize(self, file: int | Path, size_bytes: int) -> None:
        self._refuse()
        super().resize(file, size_bytes)

    def _refuse(self) -> None:
        if self.room <= 0:
            raise OSError(errno.EROFS, "Read-only file system")


def test_log_that_could_not_be_cut_is_cut_before_the_next_run(tmp_path: Path) -> None:
    """Otherwise a run would follow the last block that fits, where a segment has zeros."""
    folder = tmp_path / "shard"
    singles = [1000 * second for second in range(1, 83)]
    threes = [10 * MINUTE_MS + 1000 * (at // 3) for at in range(150)]
    made = entries([59 * MINUTE_MS, *singles, *threes])
    files = ReadOnlyForAWhile(room=1000)
    options = replace(ROOMY, segment_bytes=170 * RECORD_BYTES, memtable_entries=len(made) - 1)
    store = opened(folder, options=options, files=files)
    store.put(made[:1])
    store.flush(1)
    store.put(made[1:])
    files.room = 4
    with pytest.raises(StorageFull, match="Read-only"):
        write_once(store, len(made))
    end = files_of(store).log.end
    assert end == files_of(store).checkpoint.log_end == 2 * RECORD_BYTES
    assert any((folder / "log" / "0000000000.log").read_bytes()[end:])
    files.room = 1000
    store.advance(START_MS + 2 * MINUTE_MS, len(made))
    write_once(store, len(made))
    store.close()
    store = reopened_at(folder, 2 * MINUTE_MS, len(made), options)
    assert taken(store, 60 * MINUTE_MS) == made[83:] + made[:1]
    store.close()


@pytest.mark.parametrize("kept_bytes", [64, 65, 2000])
def test_log_that_a_kill_left_half_cut_is_whole_again(tmp_path: Path, kept_bytes: int) -> None:
    """A cut shortens the file, and then restores its length."""
    folder = tmp_path / "shard"
    made = entries([1000, 2000, 3000])
    store = opened(folder, options=ROOMY)
    store.put(made[:1])
    store.flush(1)
    store.close()
    segment = folder / "log" / "0000000000.log"
    os.truncate(segment, kept_bytes)
    assert verify(folder).findings == []
    store = reopened_at(folder, 0, 1, ROOMY)
    assert segment.stat().st_size == ROOMY.segment_bytes
    store.put(made[1:])
    store.flush(3)
    assert verify(folder).findings == []
    assert taken(store, 4000) == made
    store.close()


def test_log_cut_before_its_end_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    store = opened(folder, options=ROOMY)
    store.put(entries([1000]))
    store.flush(1)
    store.close()
    os.truncate(folder / "log" / "0000000000.log", 63)
    assert "63 bytes instead of 2736" in verify(folder).findings[0]
    store = opened(folder, committed(next_offset=1), options=ROOMY)
    assert store.report.state == "put aside"
    store.close()
