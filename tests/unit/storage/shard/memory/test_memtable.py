"""Entries before they are on disk: columns when far, tuples when near, never lost."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

import pytest

from storage.counts import TargetNumbers
from storage.memtable import NEAR_MS, NONE_MS, Columns, Memtable
from storage.store import Entry, dues_of
from tests.unit.storage.shards import START_MS, entries, entry

FAR_MS = 2 * NEAR_MS
NUMBERS = TargetNumbers()


def _table(taken: list[Entry]) -> Memtable:
    table = Memtable(NUMBERS, START_MS)
    table.put(taken, dues_of(taken))
    return table


def _finished(steps: Generator[int, None, Columns]) -> Columns:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            columns: Columns = done.value
            return columns


def test_near_and_far_entries_are_written_with_what_they_hold() -> None:
    taken = entries([5 * FAR_MS, FAR_MS, 1])
    assert sorted(_finished(_table(taken).to_columns(2)).entries(NUMBERS.by_number)) == sorted(
        taken
    )


def test_entry_that_comes_near_in_memory_is_found_in_order_with_its_neighbours() -> None:
    taken = entries([FAR_MS, FAR_MS + 1, FAR_MS - 1, FAR_MS, 9 * FAR_MS])
    table = _table(taken)
    found = table.peek(START_MS + FAR_MS + 1, 10)
    assert [(entry[0] - START_MS - FAR_MS, entry[1]) for entry in found] == [
        (-1, 2),
        (0, 0),
        (0, 3),
        (1, 1),
    ]
    assert len(table) == 5


def test_what_comes_near_while_the_table_is_being_written_is_written_once() -> None:
    table = _table(entries([1, 2, 3, FAR_MS, 3 * FAR_MS]))
    steps = table.to_columns(2)
    next(steps)
    table.peek(START_MS + FAR_MS, 10)
    assert sorted(_finished(steps).offsets.tolist()) == [0, 1, 2, 3, 4]


def test_table_weighs_what_it_holds_and_nothing_when_all_has_ended() -> None:
    table = _table(entries([1, 4 * FAR_MS]))
    assert table.weight_bytes > 100
    table.forget((START_MS + 4 * FAR_MS, 1))
    assert (len(table), table.weight_bytes, table.first_offset) == (0, 0, None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("wanted", [None, "orders"])
def test_page_after_page_shows_every_entry_once_and_in_order(seed: int, wanted: str | None) -> None:
    chance = Random(seed)
    table, taken = Memtable(NUMBERS, START_MS), list[Entry]()
    for batch in range(1, chance.randrange(2, 8)):
        come = [
            entry(chance.randrange(200) * 100, len(taken) + n, chance.choice(["orders", "bills"]))
            for n in range(chance.randrange(1, 60))
        ]
        taken += come
        table.put(come, dues_of(come))
        if batch % 2:
            table.peek(START_MS + 2 * NEAR_MS * batch, 1)
    wants = None if wanted is None else wanted.__eq__
    after, shown = (0, 0), list[Entry]()
    while after[0] < NONE_MS:
        found, after = table.scan(after, NONE_MS, wants, 7)
        shown += found
    assert shown == sorted(one for one in taken if wanted in {None, one[2]})
