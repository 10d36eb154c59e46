"""Damage that RocksDB does not detect, and writes despite its errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.rocksdb import RocksDatabase
from tests.unit.storage.shards import committed, entries, opened_kind, taken


@pytest.mark.parametrize("kind", [5, 8, 0x81])
def test_a_manifest_record_of_an_odd_type_is_damage_and_not_read_for_ever(
    tmp_path: Path, kind: int
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind("rocksdb", folder)
    store.put(entries(range(1, 31)))
    store.flush(30)
    store.close()
    manifest = next((folder / "rocksdb").glob("MANIFEST-*"))
    data = bytearray(manifest.read_bytes())
    second = 7 + int.from_bytes(data[4:6], "little")
    data[second + 6] = kind
    manifest.write_bytes(data)
    store = opened_kind("rocksdb", folder, committed(next_offset=30))
    assert store.report.state == "put aside"
    store.close()


def test_a_batch_that_cannot_bepersisted_yet_is_served_once_andpersisted_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []
    persist = RocksDatabase.persist

    def failing_once(database: RocksDatabase, *, wait: bool = True) -> None:
        tries.append(wait)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        persist(database, wait=wait)

    monkeypatch.setattr(RocksDatabase, "persist", failing_once)
    store = opened_kind("rocksdb", tmp_path / "shard")
    made = entries(range(1, 221))
    for start in range(0, 220, 20):
        store.put(made[start : start + 20])
        while store.maintain(start + 20, 100):
            pass
    assert tries == [False, False]
    assert store.pending() == 220
    assert taken(store, 1000) == made
    store.close()
