"""Memory kept of slots that were read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from storage.wheel.tier import WheelTier
from tests.unit.storage.shards import START_MS, TINY, entries, opened


def test_chains_that_are_closed_are_noted_no_more_though_nothing_is_put(tmp_path: Path) -> None:
    count = 300
    store = opened(tmp_path / "shard", options=replace(TINY, slots=2 * count))
    store.put(entries([TINY.precision_ms * at for at in range(1, count + 1)]))
    store.flush(count)
    assert isinstance(store._tier, WheelTier)
    kept: list[int] = []
    for slot in range(1, count):
        store.advance(START_MS + TINY.precision_ms * slot, count)
        while store.maintain(count, 10):
            pass
        kept.append(len(store._tier._loader._later))
    assert store.pending() == 1
    assert max(kept) <= 2 * (TINY.close_slots + TINY.load_ahead_slots)
    store.close()
