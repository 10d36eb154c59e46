"""What a folder is looked through with after the machine was started anew: not with its size."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from storage.options import Options
from storage.shard.checkpoint import CHECKPOINT, read_checkpoint
from storage.wheel.inspection import consistency_check
from tests.unit.storage.shards import START_MS, committed, opened

ENTRIES = 60_000
ROW_BYTES = 56
STEP = 6_000
OPTIONS = Options(precision_ms=1_000, slots=64, segment_bytes=1 << 20, memtable_entries=20_000)


def test_millions_that_wait_are_looked_through_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tenfold rows take no more memory: with all at once, their size several times."""
    monkeypatch.setattr(consistency_check, "ROWS_AT_ONCE", 1_000)
    filled(tmp_path / "few", ENTRIES // 10)
    filled(tmp_path / "many", ENTRIES)
    few, many = peak_bytes(tmp_path / "few"), peak_bytes(tmp_path / "many")
    assert many < few + ENTRIES * ROW_BYTES // 4


def filled(folder: Path, count: int) -> None:
    """A store in which so many wait, of another boot."""
    store = opened(folder, committed(), options=OPTIONS)
    for first in range(0, count, STEP):
        numbers = range(first, first + STEP)
        store.put([(START_MS + n % 60_000, n, "orders", b"x") for n in numbers])
        while store.maintain(first + STEP, STEP):
            pass
    store.flush(count)
    store.close()
    place = folder / CHECKPOINT
    place.write_bytes(replace(read_checkpoint(place), boot_id="another").to_bytes())


def peak_bytes(folder: Path) -> int:
    """What opening it takes at most."""
    tracemalloc.start()
    try:
        store = opened(folder, committed(next_offset=ENTRIES), options=OPTIONS)
        assert store.report.state == "reopened"
        store.close()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
