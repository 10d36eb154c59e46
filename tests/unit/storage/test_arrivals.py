"""Entries on their way to disk: encoded once when far, tuples when near, never lost between."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from storage.arrivals import NEAR_MS, Arrivals
from storage.encoded import Encoded
from storage.store import Entry
from tests.unit.storage.shards import START_MS, JsonCodec, entries


class CountingCodec(JsonCodec):
    """Remembers the offsets it has encoded and decoded, in order."""

    def __init__(self) -> None:
        self.encoded: list[int] = []
        self.decoded: list[int] = []

    def encode(self, entries: Sequence[Entry]) -> list[bytes]:
        self.encoded += [entry[1] for entry in entries]
        return super().encode(entries)

    def decode(
        self, dues_ms: list[int], offsets: list[int], targets: list[str], bodies: list[bytes]
    ) -> list[Entry]:
        self.decoded += offsets
        return super().decode(dues_ms, offsets, targets, bodies)


def _table(codec: JsonCodec, taken: list[Entry]) -> Arrivals:
    table = Arrivals(codec, START_MS)
    table.take(taken, np.array([entry[0] for entry in taken]))
    return table


def _finished(steps: Generator[int, None, Encoded]) -> list[int]:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            offsets: list[int] = sorted(done.value.offsets.tolist())
            return offsets


def _encoded(table: Arrivals) -> list[int]:
    return _finished(table.encode_all(2))


def test_far_entry_is_encoded_once_and_never_decoded_when_it_is_written_in_time() -> None:
    codec = CountingCodec()
    table = _table(codec, entries([NEAR_MS, 5 * NEAR_MS]))
    assert _encoded(table) == [0, 1]
    assert (codec.encoded, codec.decoded) == ([0, 1], [])


def test_near_entry_is_not_encoded_before_it_is_written() -> None:
    codec = CountingCodec()
    table = _table(codec, entries([NEAR_MS - 1]))
    assert codec.encoded == []
    assert _encoded(table) == [0]


def test_entry_that_comes_near_in_memory_is_found_in_order_with_its_neighbours() -> None:
    taken = entries([NEAR_MS, NEAR_MS + 1, NEAR_MS - 1, NEAR_MS, 9 * NEAR_MS])
    table = _table(CountingCodec(), taken)
    found = table.peek(START_MS + NEAR_MS + 1, 10)
    assert [(entry[0] - START_MS - NEAR_MS, entry[1]) for entry in found] == [
        (-1, 2),
        (0, 0),
        (0, 3),
        (1, 1),
    ]
    assert len(table) == 5


def test_what_comes_near_while_the_table_is_being_written_is_written_once() -> None:
    table = _table(CountingCodec(), entries([1, 2, 3, NEAR_MS, 3 * NEAR_MS]))
    steps = table.encode_all(2)
    next(steps)
    table.peek(START_MS + NEAR_MS, 10)
    assert _finished(steps) == [0, 1, 2, 3, 4]


def test_table_weighs_what_it_holds_and_nothing_when_all_has_ended() -> None:
    table = _table(CountingCodec(), entries([1, 4 * NEAR_MS]))
    assert table.weight_bytes > 100
    table.forget(START_MS + 4 * NEAR_MS, 1)
    assert (len(table), table.weight_bytes, table.first_offset) == (0, 0, None)
