"""Rows changed with a valid CRC are damage, never another record or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.opening import verify
from storage.wheel.log import CRC_FROM, HEADER, RECORD
from tests.unit.storage.shards import START_MS, TINY, committed, entries, entry, opened

LAP_MS = TINY.slots * TINY.precision_ms
NO_SPAN, NO_TARGET = 0xC000, 999


def forge(folder: Path, name: str, change: int) -> None:
    segment = min((folder / "log").glob("*.log"))
    count = segment.stat().st_size // RECORD.itemsize
    cells = np.memmap(segment, RECORD, "r+", shape=count)
    cells[name][1] += change
    run = cells.view(np.uint8).data[: 2 * RECORD.itemsize]
    cells.view(HEADER)["crc"][0] = crc32(run[CRC_FROM:])
    cells.flush()


@pytest.mark.parametrize(
    ("name", "change", "finding"),
    [("location_high", NO_SPAN, "names a file of bodies"), ("target", NO_TARGET, "target")],
)
def test_a_row_that_names_what_cannot_be_is_damage(
    tmp_path: Path, name: str, change: int, finding: str
) -> None:
    store = opened(tmp_path)
    store.put(entries([1_000]))
    store.flush(1)
    store.close()
    forge(tmp_path, name, change)
    assert any(finding in one for one in verify(tmp_path).findings)
    store = opened(tmp_path, committed(next_offset=1))
    assert store.report.state == "reopened"
    with pytest.raises(StoreDamaged, match=finding):
        store.due(START_MS + 1_000, 9)
    store.close()
    assert opened(tmp_path, committed(next_offset=1)).report.state == "put aside"


def test_a_row_without_a_target_is_damage_where_it_is_only_counted(tmp_path: Path) -> None:
    """It ended at another owner, so nothing is delivered here."""
    store = opened(tmp_path)
    store.put(entries([1_000]))
    store.flush(1)
    store.close()
    forge(tmp_path, "target", NO_TARGET)
    store = opened(tmp_path, committed(watermark_ms=2_000, next_offset=1))
    assert store.due(START_MS + 9_000, 9).entries == []
    with pytest.raises(StoreDamaged, match="has no name"):
        store.flush(1)
    store.close()


def test_a_slot_is_not_passed_over_a_row_of_another_slot(tmp_path: Path) -> None:
    """A row of a later lap would count as ended."""
    store = opened(tmp_path)
    store.put([entry(250 + 2 * LAP_MS, 0), entry(250, 1)])
    store.flush(2)
    forge(tmp_path, "fires_ms", TINY.precision_ms)
    with pytest.raises(StoreDamaged, match="belongs to another slot"):
        store.advance(START_MS + LAP_MS, 2)
    store.close()
