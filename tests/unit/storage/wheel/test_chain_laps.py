"""Lap by lap the wheel reads no chain repeatedly in vain."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.store import LAST_OFFSET
from storage.wheel.log import Head, Run, TimerLog
from tests.unit.storage.shards import START_MS, TINY, entries, opened

LAP_MS = TINY.slots * TINY.precision_ms
FAR_MS = START_MS + 10_000 * LAP_MS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Head]:
    heads: list[Head] = []
    chain = TimerLog.chain

    def noted(log: TimerLog, head: Head, *, checked: bool = True) -> Iterator[Run]:
        heads.append(head)
        return chain(log, head, checked=checked)

    monkeypatch.setattr(TimerLog, "chain", noted)
    return heads


def test_a_chain_is_read_once_for_each_lap_that_it_reaches_into_and_once_in_vain(
    tmp_path: Path, read: list[Head]
) -> None:
    store = opened(tmp_path / "shard")
    dues_ms = [1, 150, LAP_MS + 1, 40 * LAP_MS + 1, 40 * LAP_MS + 2, 50 * LAP_MS + 150]
    store.put(entries(dues_ms))
    store.flush(6)
    read.clear()
    found, upto = store.scan((0, 0), FAR_MS, None, 100, 10**6)
    while upto < (FAR_MS, LAST_OFFSET):
        part, upto = store.scan(upto, FAR_MS, None, 100, 10**6)
        found += part
    assert found == sorted(entries(dues_ms))
    assert len(read) <= 9
    store.close()


def test_a_chain_that_has_changed_is_read_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "shard")
    store.put(entries([1, 2 * LAP_MS + 1, 9 * LAP_MS + 1]))
    store.flush(3)
    _, first = store.scan((0, 0), FAR_MS, None, 1, 10**6)
    assert store.scan(first, FAR_MS, None, 1, 10**6).entries == entries([1, 2 * LAP_MS + 1])[1:]
    store.put(entries([5 * LAP_MS + 1], 3))
    store.flush(4)
    found, _ = store.scan((START_MS + 4 * LAP_MS, 0), START_MS + 6 * LAP_MS, None, 9, 10**6)
    assert found == entries([5 * LAP_MS + 1], 3)
    store.close()
