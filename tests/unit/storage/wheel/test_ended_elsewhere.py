"""Entries delivered elsewhere while the store was closed are counted in small steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.opening import verify
from storage.store import Entry
from storage.wheel import tier, wheel
from tests.unit.storage.shards import TINY, committed, entry, opened, taken

SLOT_MS = TINY.precision_ms
ENDED, PENDING = 400, 20
ROOMY = replace(TINY, slots=1000, memtable_entries=ENDED + PENDING)


def made() -> list[Entry]:
    slots = [*range(1, ENDED + 1), *range(600, 600 + PENDING)]
    return [entry(SLOT_MS * slot, at, f"topic-{at % 5}") for at, slot in enumerate(slots)]


@pytest.mark.parametrize("counted_rows", [16, tier.COUNTED_ROWS])
def test_each_step_counts_out_once_or_twice_however_many_slots_have_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted_rows: int
) -> None:
    folder, count = tmp_path / "shard", ENDED + PENDING
    store = opened(folder, options=ROOMY)
    store.put(made())
    store.flush(count)
    store.close()
    calls = [0]
    counting = wheel.counted_by_name

    def counted(*args: Any) -> Any:
        calls[-1] += 1
        return counting(*args)

    monkeypatch.setattr(wheel, "counted_by_name", counted)
    monkeypatch.setattr(tier, "COUNTED_ROWS", counted_rows)
    passed_ms = SLOT_MS * 500
    store = opened(folder, committed(passed_ms, count, 0, count), options=ROOMY)
    while store.maintain(count, 10):
        calls.append(0)
    assert sum(calls) == -(-ENDED // counted_rows)
    assert max(calls) <= 2
    assert store.pending() == PENDING
    assert store.pending_by_target().total == PENDING
    assert store.pending_bytes() == store.pending_bytes_by_target().total
    assert store.floor(count) == ENDED
    assert verify(folder).findings == []
    assert taken(store, SLOT_MS * 700) == made()[ENDED:]
    assert (store.pending(), store.pending_bytes()) == (0, 0)
    store.close()
