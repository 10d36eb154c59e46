"""Store files changed from outside: detected or harmless, never silently wrong."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import StoreDamaged
from storage.options import KINDS, StoreKind
from storage.store import Entry
from tests.unit.storage.shards import committed, entries, opened_kind, taken

pytestmark = pytest.mark.rest

YEAR_MS = 366 * 86_400_000
AT = committed(watermark_ms=700, cursor=150, next_offset=150)
kinds = st.sampled_from(KINDS)


def filled(folder: Path, seed: int, kind: StoreKind = "wheel") -> tuple[list[Entry], int]:
    draw = random.Random(seed)
    dues_ms = [draw.choice([draw.randrange(1, 3000), draw.randrange(1, 10**6)]) for _ in range(150)]
    made = entries(dues_ms)
    store = opened_kind(kind, folder)
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


def read_back(folder: Path, pending: list[Entry], kind: StoreKind = "wheel") -> list[Entry] | None:
    """Return the pending entries after a restart: those on disk, and uncovered ones from the
    broker. Return None if the folder was refused."""
    store = opened_kind(kind, folder, AT)
    try:
        if store.report.state == "put aside":
            assert store.pending() == 0
            assert store.covered == 0
            return None
        again = [entry for entry in pending if entry[1] >= store.covered]
        found = taken(store, YEAR_MS)
        assert store.pending() == 0
        return sorted(found + again)
    except StoreDamaged:
        store.close()
        store = opened_kind(kind, folder, AT)
        assert store.report.state == "put aside"
        return None
    finally:
        store.close()


@settings(max_examples=200, deadline=None)
@given(
    kind=kinds,
    seed=st.integers(0, 20),
    choice=st.integers(0, 100),
    place=st.floats(0, 1),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_anywhere(
    kind: StoreKind, seed: int, choice: int, place: float, bit: int
) -> None:
    """Invariant: with any flipped bit the pending entries are exact, or the folder put aside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed, kind)
        path = damaged_file(folder, choice)
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)
        assert read_back(folder, pending, kind) in (pending, None)


@settings(max_examples=100, deadline=None)
@given(kind=kinds, seed=st.integers(0, 20), choice=st.integers(0, 100), place=st.floats(0, 1))
def test_a_file_cut_short(kind: StoreKind, seed: int, choice: int, place: float) -> None:
    """Invariant: with any file cut the pending entries are exact, or the folder put aside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed, kind)
        path = damaged_file(folder, choice)
        path.write_bytes(path.read_bytes()[: int(place * path.stat().st_size)])
        assert read_back(folder, pending, kind) in (pending, None)


@settings(max_examples=60, deadline=None)
@given(kind=kinds, seed=st.integers(0, 20), choice=st.integers(0, 100))
def test_a_file_missing(kind: StoreKind, seed: int, choice: int) -> None:
    """Invariant: with any file missing the pending entries are exact, or the folder put aside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        pending, _ = filled(folder, seed, kind)
        path = damaged_file(folder, choice)
        path.unlink()
        assert read_back(folder, pending, kind) in (pending, None)


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
    monkeypatch.setattr("storage.wheel.tier.boot_id", lambda: "another")
    assert read_back(folder, pending) in ((None,) if name == "log" else (None, pending))


def test_an_intact_folder_is_trusted_after_a_restart_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, _ = filled(tmp_path / "shard", 1)
    monkeypatch.setattr("storage.wheel.tier.boot_id", lambda: "another")
    assert read_back(tmp_path / "shard", pending) == pending
