"""A chain of many runs is closed and copied in small steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.tiered_store import TieredStore
from storage.wheel import tier as compaction
from storage.wheel.log import TimerLog
from storage.wheel.tier import EndedElsewhere, WheelTier, close_slots, copy_sparse
from storage.wheel.wheel import ChainWriter
from tests.unit.storage.shards import START_MS, TINY, entry, opened

RUNS = 200
LAP_MS = TINY.precision_ms * TINY.slots


def tier_with_a_long_chain(store: TieredStore, due_ms: int) -> WheelTier:
    for at in range(RUNS):
        store.put([entry(due_ms, at)])
        store.flush(at + 1)
    assert isinstance(store._tier, WheelTier)
    return store._tier


def most_runs_read_in_a_step(steps: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> int:
    read: list[int] = []
    most = total = 0
    run = TimerLog.run

    def noted(log: TimerLog, position: int, **how: Any) -> Any:
        read.append(position)
        return run(log, position, **how)

    with monkeypatch.context() as patched:
        patched.setattr(TimerLog, "run", noted)
        for _ in steps:
            most, total = max(most, len(read)), total + len(read)
            read.clear()
    assert total >= RUNS
    return most


@pytest.mark.parametrize("joined_records", [RUNS // 2, 2 * RUNS])
def test_chain_is_copied_forward_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined_records: int
) -> None:
    store = opened(tmp_path / "shard")
    tier = tier_with_a_long_chain(store, 5 * LAP_MS)
    monkeypatch.setattr(compaction, "JOINED_RECORDS", joined_records)
    monkeypatch.setattr(compaction, "_sparsest", lambda _files, _chains: 0)
    chains = ChainWriter(tier.files.wheel, tier.files.log)
    steps = copy_sparse(tier.files, chains, tier._loader)
    assert most_runs_read_in_a_step(steps, monkeypatch) <= 3
    head = chains.head((START_MS + 5 * LAP_MS) // TINY.precision_ms)
    assert head.records == RUNS
    assert len(list(tier.files.log.chain(head))) == (RUNS if joined_records < RUNS else 5)
    assert chains.live.total() == 0
    assert chains.live[0] == -tier.files.checkpoint.live[0]
    store.close()


def test_chain_with_later_laps_is_closed_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "shard")
    tier = tier_with_a_long_chain(store, 5 * LAP_MS)
    store.put([entry(LAP_MS, RUNS)])
    store.flush(RUNS + 1)
    chains = ChainWriter(tier.files.wheel, tier.files.log)
    passed = START_MS // TINY.precision_ms
    elsewhere = EndedElsewhere(passed, (START_MS, -1))
    last = passed + TINY.slots
    steps = close_slots(tier.files, chains, last, elsewhere)
    assert most_runs_read_in_a_step(steps, monkeypatch) <= 3
    assert chains.head(last).records == RUNS
    assert chains.live.total() == -1
    store.close()
