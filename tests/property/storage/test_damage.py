"""Files changed behind the engine's back: found out or harmless, never silently wrong."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import StoreDamaged
from storage.store import Entry
from tests.unit.storage.shards import committed, entries, opened, taken

YEAR_MS = 366 * 86_400_000


def filled(folder: Path, seed: int) -> tuple[list[Entry], int]:
    """A closed store with entries over several laps, some ended; what pends, and where it stood."""
    draw = random.Random(seed)
    dues_ms = [draw.choice([draw.randrange(1, 3000), draw.randrange(1, 10**6)]) for _ in range(150)]
    made = entries(dues_ms)
    store = opened(folder)
    for start in range(0, len(made), 30):
        store.put(made[start : start + 30])
        store.maintain(start + 30, 50)
    ended = taken(store, 700)
    store.flush(150)
    store.close()
    return sorted(set(made) - set(ended)), 700


def damaged_file(folder: Path, choice: int) -> Path:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return files[choice % len(files)]


def read_back(folder: Path) -> list[Entry] | None:
    """Everything pending as a restarted proxy would see it; None when the folder was refused."""
    store = opened(folder, committed(watermark_ms=700, cursor=150, next_offset=150))
    try:
        if store.report.state == "put aside":
            assert store.pending() == 0
            assert store.covered == 0
            return None
        found = taken(store, YEAR_MS)
        assert store.pending() == 0
        return found
    except StoreDamaged:
        store.close()
        store = opened(folder, committed(watermark_ms=700, cursor=150, next_offset=150))
        assert store.report.state == "put aside"
        return None
    finally:
        store.close()


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 20),
    choice=st.integers(0, 100),
    place=st.floats(0, 1),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_anywhere(seed: int, choice: int, place: float, bit: int) -> None:
    """With a bit flipped in any file, what pends is read back exactly, or the folder put aside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed)
        path = damaged_file(folder, choice)
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)
        assert read_back(folder) in (pending, None)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 20), choice=st.integers(0, 100), place=st.floats(0, 1))
def test_a_file_cut_short(seed: int, choice: int, place: float) -> None:
    """With any file cut anywhere, what pends is read back exactly, or the folder is put aside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed)
        path = damaged_file(folder, choice)
        path.write_bytes(path.read_bytes()[: int(place * path.stat().st_size)])
        assert read_back(folder) in (pending, None)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 20), choice=st.integers(0, 100))
def test_a_file_missing(seed: int, choice: int) -> None:
    """With any file gone, what pends is read back exactly, or nothing is, from offset 0 on."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed)
        path = damaged_file(folder, choice)
        path.unlink()
        found = read_back(folder)
        assert found in (pending, None) or (path.name == "checkpoint" and found == [])


@pytest.mark.parametrize("name", ["log", "wheel"])
def test_pages_lost_in_a_power_cut_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "shard"
    pending, _ = filled(folder, 1)
    path = next((folder / name).glob("*")) if name == "log" else folder / name
    data = bytearray(path.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    path.write_bytes(data)
    monkeypatch.setattr("storage.opening.boot_id", lambda: "another")
    assert read_back(folder) in ((None,) if name == "log" else (None, pending))


def test_an_intact_folder_is_trusted_after_a_restart_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, _ = filled(tmp_path / "shard", 1)
    monkeypatch.setattr("storage.opening.boot_id", lambda: "another")
    assert read_back(tmp_path / "shard") == pending
