"""Memory and findings of a folder check."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from zlib_ng.zlib_ng import crc32

from storage.opening import verify
from storage.options import Options
from storage.tier import FolderReport
from storage.wheel.inspection import look_into_wheel
from storage.wheel.log import CRC_FROM, HEADER, RECORD
from tests.unit.storage.shards import START_MS, committed, opened

ENTRIES = 60_000
ROW_BYTES = 40
STEP = 6_000
OPTIONS = Options(precision_ms=1_000, slots=64, segment_bytes=1 << 20, memtable_entries=20_000)


def test_millions_that_wait_are_looked_through_some_at_a_time(tmp_path: Path) -> None:
    """Tenfold rows take no more memory. Reading all at once would take several times their size."""
    filled(tmp_path / "few", ENTRIES // 10)
    filled(tmp_path / "many", ENTRIES)
    few, many = peak_bytes(tmp_path / "few"), peak_bytes(tmp_path / "many")
    assert many < few + ENTRIES * ROW_BYTES // 4


@pytest.mark.parametrize(
    ("field", "value", "is_sealed", "finding"),
    [
        ("crc", 1, False, "fails its CRC"),
        ("chain", 1, True, "counts 1 records in its chain"),
        ("prev", 1 << 40, True, "no run begins"),
        ("prev", -1, True, "no run can be"),
        ("first due", 7, True, "belongs to another slot"),
        ("each due", START_MS + 30_500, True, "belongs to another slot"),
    ],
)
def test_a_run_that_does_not_fit_its_chain_is_named(
    tmp_path: Path, field: str, value: int, is_sealed: bool, finding: str
) -> None:
    filled(tmp_path, ENTRIES)
    segment = max((tmp_path / "log").glob("*.log"))
    cells = np.memmap(segment, HEADER, "r+", shape=segment.stat().st_size // HEADER.itemsize)
    first, records = cells[0], cells.view(RECORD)[1 : int(cells[0]["count"]) + 1]
    assert first["prev"] >= 0
    if field.endswith("due"):
        records["fires_ms"][: None if field == "each due" else 1] = value
    else:
        first[field] = value
    if is_sealed:
        end = (records.size + 1) * HEADER.itemsize
        first["crc"] = crc32(cells.view(np.uint8).data[CRC_FROM:end])
    cells.flush()
    found = verify(tmp_path).findings
    assert any(finding in one for one in found), found


def filled(folder: Path, count: int) -> None:
    store = opened(folder, committed(), options=OPTIONS)
    for first in range(0, count, STEP):
        numbers = range(first, first + STEP)
        store.put([(START_MS + n % 60_000, n, "orders", b"x") for n in numbers])
        while store.maintain(first + STEP, STEP):
            pass
    store.flush(count)
    store.close()


def peak_bytes(folder: Path) -> int:
    tracemalloc.start()
    try:
        report = FolderReport(folder)
        with look_into_wheel(folder) as reader:
            reader.check(report)
        assert report.findings == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
