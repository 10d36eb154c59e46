"""Scans of a store, of any kind."""

from pathlib import Path

import pytest

from storage.options import KINDS, StoreKind
from storage.store import LAST_OFFSET, Entry, Key, Store, Wants
from storage.wheel import inspection as wheel_scan
from tests.unit.storage.shards import START_MS, committed, entries, entry, opened_kind, taken

pytestmark = pytest.mark.parametrize("kind", KINDS)

FAR_MS = START_MS + 10**9


def scanned(
    store: Store, max_entries: int = 7, wants: Wants = None, until_ms: int = FAR_MS
) -> list[Entry]:
    found: list[Entry] = []
    place: Key = (0, 0)
    while place < (until_ms, LAST_OFFSET):
        part, place = store.scan(place, until_ms, wants, max_entries, 10**6)
        found += part
    return found


def test_each_step_of_a_flush_shows_every_entry_once(kind: StoreKind, tmp_path: Path) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    expected: list[Entry] = []
    for first in range(0, 200, 20):
        fresh = entries([(first + at) * 37 % 1_500 + 1 for at in range(20)], first)
        store.put(fresh)
        expected = sorted(expected + fresh)
        for _ in range(12):
            store.maintain(first + 20, 1)
            assert scanned(store) == expected
    store.close()


def test_many_runs_of_one_slot_are_shown_in_order(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_scan, "MERGED_ROWS", 16)
    monkeypatch.setattr(wheel_scan, "LEAST_SCANNED_ROWS", 1)
    store = opened_kind(kind, tmp_path / "shard")
    expected: list[Entry] = []
    for first in range(0, 120, 20):
        fresh = entries([400 + (first + at) * 7 % 90 for at in range(20)], first)
        store.put(fresh)
        expected = sorted(expected + fresh)
        store.flush(first + 20)
    assert scanned(store) == expected
    assert scanned(store, max_entries=1) == expected
    assert scanned(store, until_ms=START_MS + 440) == [
        e for e in expected if e[0] <= START_MS + 440
    ]
    store.close()


def test_what_the_floor_has_passed_is_not_shown(kind: StoreKind, tmp_path: Path) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    store.put(entries(range(1, 101)))
    store.flush(100)
    store.close()
    at = committed(floor=40, next_offset=100)
    store = opened_kind(kind, tmp_path / "shard", at)
    assert scanned(store) == entries(range(1, 101))[40:]
    store.close()


def test_looking_changes_nothing_of_what_is_delivered(kind: StoreKind, tmp_path: Path) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    store.put(entries(range(1, 101)))
    store.flush(100)
    peeked = store.due(START_MS + 10, 100)
    before = store.peeked_bytes
    assert scanned(store) == entries(range(1, 101))
    assert store.peeked_bytes == before
    assert store.due(START_MS + 10, 100) == peeked
    assert taken(store, 200) == entries(range(1, 101))
    assert scanned(store) == []
    store.close()


def test_targets_without_a_number_are_told_apart(kind: StoreKind, tmp_path: Path) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    put = [entry(at + 1, at, f"t{at % 5}") for at in range(50)]
    store.put(put)
    for wanted in ("t0", "t4", "none"):
        assert scanned(store, wants=wanted.__eq__) == [e for e in put if e[2] == wanted]
    store.flush(50)
    for wanted in ("t0", "t4", "none"):
        assert scanned(store, wants=wanted.__eq__) == [e for e in put if e[2] == wanted]
    store.close()


def test_bodies_are_shown_up_to_a_number_of_bytes_and_one_at_least(
    kind: StoreKind, tmp_path: Path
) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    store.put(entries(range(1, 101)))
    store.flush(90)
    assert len(store.scan((0, 0), FAR_MS, None, 50, 30).entries) in {3, 4}
    assert store.scan((0, 0), FAR_MS, None, 50, 1).entries == [entry(1, 0)]
    store.close()


def test_what_is_far_away_and_still_in_memory_is_shown_in_order(
    kind: StoreKind, tmp_path: Path
) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    expected: list[Entry] = []
    for first in range(0, 60, 10):
        fresh = entries([9_000 + (first + at) * 7 % 20 for at in range(10)], first)
        store.put(fresh)
        expected = sorted(expected + fresh)
    assert scanned(store) == expected
    assert scanned(store, wants="orders".__eq__) == expected
    store.close()
