"""Many runs of the log, read at once, equal the single reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.folder import Checkpoint, Files
from storage.options import RECORD_BYTES
from storage.wheel import log as many_runs
from storage.wheel.log import (
    CRC_FROM,
    HEADER,
    RECORD,
    RUN_MAGIC,
    TimerLog,
    positions_between,
    slots_at,
    whole_headers_at,
)
from storage.wheel.wheel import SLOT, ChainWriter, TimerWheel, mend_wheel, slot_rows

SEGMENT_BYTES = 85 * RECORD_BYTES + 16
LAST_CELL = 84 * RECORD_BYTES
SLOTS = 8
ROWS_OF_RUNS = [[1, 1, 3], [2], [1, 2, 1, 5], [30], [1], [40], [1, 1]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TimerLog]:
    made = TimerLog(tmp_path, SEGMENT_BYTES, 1, Files())
    yield made
    made.close()


def written(log: TimerLog, blocks: list[list[int]] = ROWS_OF_RUNS, due_ms: int = 0) -> list[int]:
    chains = ChainWriter(TimerWheel(np.zeros(SLOTS, SLOT), Files()), log)
    positions: list[int] = []
    offset = 0
    for records in blocks:
        rows = np.zeros(sum(records), RECORD)
        rows["fires_ms"] = due_ms + np.repeat(np.arange(len(records)), records)
        rows["offset"] = np.arange(offset, offset + rows.size)
        offset += rows.size
        positions += chains.write(rows)[1].tolist()
    assert len(log.segments) > 1
    return positions


def found(log: TimerLog, start: int = 0, stop: int | None = None) -> list[int]:
    some = positions_between(log, start, log.end if stop is None else stop)
    return [position for positions in some for position in positions.tolist()]


@pytest.mark.parametrize("cells_at_once", [1, 2, 7, 8192])
def test_every_run_is_found_in_its_order(
    log: TimerLog, monkeypatch: pytest.MonkeyPatch, cells_at_once: int
) -> None:
    monkeypatch.setattr(many_runs, "CELLS_AT_ONCE", cells_at_once)
    positions = written(log)
    assert found(log) == positions
    assert found(log, positions[3]) == positions[3:]
    assert found(log, positions[3], positions[-1]) == positions[3:-1]


def test_runs_of_a_dropped_segment_are_passed_over(log: TimerLog) -> None:
    positions = written(log)
    log.drop(0)
    assert found(log) == [one for one in positions if one >= SEGMENT_BYTES]


def test_a_due_that_looks_like_the_beginning_of_a_run_is_none(log: TimerLog) -> None:
    positions = written(log, due_ms=RUN_MAGIC)
    assert found(log) == positions


def test_headers_and_slots_are_those_of_single_runs(log: TimerLog) -> None:
    positions = np.array(written(log))[::-1]
    headers = whole_headers_at(log, positions)
    runs = [log.run(position) for position in positions.tolist()]
    for name, wanted in {
        "prev": [run.prev for run in runs],
        "time": [run.head.time for run in runs],
        "chain": [run.head.records for run in runs],
        "count": [run.records for run in runs],
    }.items():
        assert headers[name].tolist() == wanted, name
    assert slots_at(log, positions).tolist() == [run.slot for run in runs]


@pytest.mark.parametrize(
    "position",
    [-RECORD_BYTES, -1, 1, RECORD_BYTES, LAST_CELL, SEGMENT_BYTES - 16, 9 * SEGMENT_BYTES, 2**62],
)
def test_no_run_is_where_none_begins(log: TimerLog, position: int) -> None:
    """Places: before the log, beside a header, in a run, near the end, and beyond the log."""
    sound = written(log)[0]
    assert whole_headers_at(log, np.array([sound]))["magic"] == RUN_MAGIC
    with pytest.raises(StoreDamaged, match="no run"):
        whole_headers_at(log, np.array([sound, position]))


@pytest.mark.parametrize("byte", [0, 4, 8, 28, RECORD_BYTES + 3])
def test_a_changed_byte_is_named(log: TimerLog, byte: int) -> None:
    positions = written(log)
    flip(log, positions[4] + byte)
    with pytest.raises(StoreDamaged, match=f"byte {positions[4] % SEGMENT_BYTES}"):
        whole_headers_at(log, np.array(positions))


def test_no_record_fits_behind_a_header_in_the_last_cell(log: TimerLog) -> None:
    sound = written(log)[0]
    forge(log, sound, LAST_CELL)
    assert slots_at(log, np.array([LAST_CELL])).tolist() == [0]
    with pytest.raises(StoreDamaged, match="no run can be"):
        whole_headers_at(log, np.array([LAST_CELL]))


def test_a_run_without_records_is_none(log: TimerLog) -> None:
    sound = written(log)[0]
    forge(log, sound, sound, count=0)
    with pytest.raises(StoreDamaged, match="no run begins"):
        whole_headers_at(log, np.array([sound]))


def forge(log: TimerLog, source: int, at: int, **changed: int) -> None:
    """Write the header at `source` to `at`, changed, with a CRC of the header only."""
    header = log.segments[0].cells.take([source // RECORD_BYTES]).view(HEADER)
    for name, value in changed.items():
        header[name] = value
    header["crc"] = crc32(header.tobytes()[CRC_FROM:])
    with log.path(0).open("r+b") as file:
        file.seek(at)
        file.write(header.tobytes())


def flip(log: TimerLog, at: int) -> None:
    number, offset = divmod(at, SEGMENT_BYTES)
    with log.path(number).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x55]))


def test_the_newest_run_of_a_place_is_the_one_that_a_mended_wheel_points_at(
    log: TimerLog,
) -> None:
    positions = written(log)
    runs = [log.run(position) for position in positions]
    live = {0: 0, 1: 0}
    for run in runs:
        live[run.position // SEGMENT_BYTES] += run.records
    newest = {run.slot % SLOTS: run.head for run in runs}
    checks = int(slot_rows(np.array(list(newest.values())))["check"].sum(dtype=np.int64))
    wheel = TimerWheel(np.zeros(SLOTS, SLOT), Files())
    mend_wheel(wheel, log, Checkpoint({}, log_end=log.end, live=live, checks=checks))
    assert {place: wheel.head(place) for place in newest} == newest
