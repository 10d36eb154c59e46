"""Approximate number of pending entries by time, for any store and place."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proxy.protocol.position import Position
from storage.counts import DueHistogram, Piece
from storage.options import KINDS, Options, StoreKind
from storage.rocksdb import MOST_PIECES, PIECES_A_MEMTABLE, WrittenPieces
from storage.store import Entry, Store
from tests.support.simulation.local_store import store_in

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
EDGES_MS = [MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS]
COUNT = 4_000


def entries(first_offset: int = 0, count: int = COUNT) -> list[Entry]:
    return [
        (1 + (offset * 7_919 % count) * 10 * HOUR_MS // count, offset, "orders", b"body")
        for offset in range(first_offset, first_offset + count)
    ]


def expected(watermark_ms: int = 0) -> list[int]:
    exact = DueHistogram(EDGES_MS)
    exact.add_evenly([Piece(0, 10 * HOUR_MS, COUNT).beyond(watermark_ms)])
    return exact.whole()


def open_store(kind: StoreKind, folder: Path, next_offset: int = 0) -> Store:
    at = Position.start(0, "digest", "id")
    return store_in(kind, folder, Options())(0, replace(at, next_offset=next_offset))


def check(store: Store, watermark_ms: int = 0) -> None:
    found = store.pending_by_time(EDGES_MS)
    assert sum(found) == store.pending()
    for about, exactly in zip(found, expected(watermark_ms), strict=True):
        assert abs(about - exactly) <= COUNT / 20


@pytest.mark.parametrize("kind", KINDS)
def test_what_pends_is_spread_over_time_in_memory_on_disk_and_after_a_restart(
    kind: StoreKind, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    assert store.pending_by_time(EDGES_MS) == [0] * 5
    store.put(entries())
    check(store)
    store.flush(COUNT)
    check(store)
    store.close()
    again = open_store(kind, tmp_path, COUNT)
    check(again)
    again.advance(2 * HOUR_MS, 2**62)
    check(again, 2 * HOUR_MS)
    again.close()


def test_pieces_are_joined_before_they_become_too_many() -> None:
    pieces = WrittenPieces()
    for number in range(MOST_PIECES // PIECES_A_MEMTABLE + 10):
        table = [(number * 1_000 + due_ms, 0, "orders", b"") for due_ms in range(1, 100)]
        pieces.note(table, 0)
    assert len(pieces._pieces) <= MOST_PIECES
    total = sum(pieces.histogram(np.array([50_000]), 0).whole())
    assert total == (MOST_PIECES // PIECES_A_MEMTABLE + 10) * 99


def test_pieces_that_have_ended_are_forgotten() -> None:
    pieces = WrittenPieces([Piece(0, 10, 5), Piece(0, 19, 20)])
    assert pieces.histogram(np.array([14]), 9).whole() == [5, 5]
    pieces.note([], 10)
    assert pieces._pieces == [Piece(0, 19, 20)]
