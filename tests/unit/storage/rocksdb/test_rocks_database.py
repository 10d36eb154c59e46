"""What RocksDB does not find out by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.shards import committed, entries, opened_kind


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
