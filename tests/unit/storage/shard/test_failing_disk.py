"""Disk errors other than a full disk: kept data, and refused writes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.errors import StorageUnreadable, StoreDamaged
from storage.folder import Files
from storage.options import StoreKind
from storage.wheel.tier import WheelTier
from tests.unit.storage.shards import START_MS, committed, entries, opened, opened_kind

EVERY_SECOND = [1_000 * second for second in range(1, 31)]


def refuse(*_: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


class UndeletableFiles(Files):
    def remove(self, path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_disk_that_cannot_be_read_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "shard")
    monkeypatch.setattr(WheelTier, "peek", refuse)
    with pytest.raises(StorageUnreadable, match="cannot read in .*: Too many open files"):
        store.due(START_MS, 10)
    store.close()


def test_counts_that_lag_behind_the_watermark_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder)
    store.put(entries(EVERY_SECOND))
    store.flush(30)
    with monkeypatch.context() as failing:
        failing.setattr(WheelTier, "forget", refuse)
        with pytest.raises(StorageUnreadable):
            store.advance(START_MS + 10_000, 2**62)
    with pytest.raises(StorageUnreadable):
        store.flush(30)
    store.close()
    again = opened(folder, committed(10_000, 2**62, 10, 30))
    again.flush(30)
    assert len(again.due(START_MS + 31_000, 100).entries) == again.pending() == 20
    again.close()


def test_error_after_the_checkpoint_is_damage_since_entries_would_be_served_twice(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder, files=UndeletableFiles())
    store.put(entries(EVERY_SECOND))
    store.flush(30)
    store.advance(START_MS + 10_000_000, 2**62)
    with pytest.raises(StoreDamaged, match="after the checkpoint: .*Input/output error"):
        store.flush(30)
    store.close()
    again = opened(folder, committed(10_000_000, 2**62, 30, 30))
    assert again.report.state == "put aside"
    again.close()


@pytest.mark.parametrize("kind", ["wheel", "rocksdb"])
def test_folder_of_a_kind_of_an_earlier_version_is_put_aside(
    tmp_path: Path, kind: StoreKind
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder)
    store.put(entries(EVERY_SECOND))
    store.flush(30)
    store.close()
    (folder / "wheel").rename(folder / "levels")
    again = opened_kind(kind, folder, committed(0, 0, 0, 30))
    assert (again.report.state, again.covered) == ("put aside", 0)
    again.close()
