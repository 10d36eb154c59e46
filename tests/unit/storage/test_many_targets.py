"""More targets than a store has numbers for: delivery, counts and storage still work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage.folder import CHECKPOINT, MAGIC, Checkpoint, read_checkpoint
from storage.opening import dump, verify
from storage.options import KINDS, StoreKind
from storage.store import NO_COUNTS, Entry
from storage.tiered_store import TieredStore
from tests.unit.storage.shards import (
    START_MS,
    TINY,
    committed,
    crashed,
    entries,
    entry,
    opened,
    opened_kind,
    taken,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


def named(count: int, targets: int, first_offset: int = 0, due_ms: int = 1000) -> list[Entry]:
    return [
        entry(due_ms + at, first_offset + at, f"t{(first_offset + at) % targets}")
        for at in range(count)
    ]


def body_bytes(entries: Sequence[Entry], target: str | None = None) -> int:
    return sum(len(body) for _, _, name, body in entries if target in {None, name})


def test_at_most_so_many_targets_are_counted_by_name(tmp_path: Path) -> None:
    store = opened(tmp_path / "shard")
    store.put(named(100, targets=10))
    assert store.pending_by_target() == ({"t0": 10, "t1": 10}, 80)
    store.flush(100)
    assert store.pending_by_target() == ({"t0": 10, "t1": 10}, 80)
    assert store.pending() == 100


@every_kind
def test_entries_of_all_targets_come_back_after_a_restart(kind: StoreKind, tmp_path: Path) -> None:
    folder, made = tmp_path / "shard", named(100, targets=10)
    store = opened_kind(kind, folder)
    store.put(made)
    store.flush(100)
    store.close()
    assert [tuple(row.values()) for row in dump(folder)] == made
    found = verify(folder)
    assert (found.findings, found.pending_by_target) == ([], ({"t0": 10, "t1": 10}, 80))
    store = opened_kind(kind, folder, committed(next_offset=100))
    assert store.pending_by_target() == ({"t0": 10, "t1": 10}, 80)
    store.put(named(10, targets=10, first_offset=100, due_ms=1100))
    assert store.pending_by_target() == ({"t0": 11, "t1": 11}, 88)
    assert taken(store, 5000, limit=7) == [*made, *named(10, 10, 100, due_ms=1100)]
    assert store.pending_by_target() == NO_COUNTS
    store.close()


@every_kind
def test_bytes_are_counted_as_entries_are_and_come_back_after_a_restart(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder, made = tmp_path / "shard", named(100, targets=10)
    by_name = {name: body_bytes(made, name) for name in ("t0", "t1")}
    others = body_bytes(made) - sum(by_name.values()) + 80 * len(b"..t2")
    store = opened_kind(kind, folder)
    store.put(made)
    assert store.pending_bytes_by_target() == (by_name, others)
    store.flush(100)
    assert store.pending_bytes_by_target() == (by_name, others)
    store.close()
    assert verify(folder).pending_bytes == sum(by_name.values()) + others
    store = opened_kind(kind, folder, committed(next_offset=100))
    assert store.pending_bytes_by_target() == (by_name, others)
    store.advance(*made[9][:2])
    by_name = {name: body_bytes(made[10:], name) for name in ("t0", "t1")}
    assert store.pending_bytes_by_target().by_name == by_name
    taken(store, 5000)
    assert (store.pending_bytes(), store.pending_bytes_by_target()) == (0, NO_COUNTS)
    store.close()


@every_kind
def test_what_ended_while_the_store_was_closed_takes_no_bytes(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder, made = tmp_path / "shard", named(100, targets=2)
    store = opened_kind(kind, folder)
    store.put(made)
    store.flush(100)
    store.close()
    store = opened_kind(kind, folder, committed(1049, 49, next_offset=100))
    store.put([entry(5000, 100, "t0")])
    store.flush(101)
    assert store.pending_bytes() == body_bytes(made[50:]) + len(b"value 100")
    assert store.pending_bytes_by_target().by_name["t1"] == body_bytes(made[50:], "t1")
    store.close()


@every_kind
def test_a_crash_before_the_next_checkpoint_leaves_the_counts_of_the_last(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    store.put(named(10, targets=5))
    store.flush(10)
    store.put(named(10, targets=5, first_offset=10, due_ms=1010))
    crashed(store, folder)
    store = opened_kind(kind, folder, committed(next_offset=20))
    assert (store.covered, store.pending_by_target()) == (10, ({"t0": 2, "t1": 2}, 6))
    store.put(named(10, targets=5, first_offset=10, due_ms=1010))
    assert store.pending_by_target() == ({"t0": 4, "t1": 4}, 12)
    store.close()


@every_kind
def test_numbers_are_used_again_though_rows_of_their_old_targets_are_still_on_disk(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    for again in range(12):
        at_ms, first = 100 * again, 9 * again
        made = [entry(at_ms + 1 + at, first + at, f"r{again}-{at % 3}") for at in range(9)]
        store.put(made)
        store.flush(first + 9)
        crashed(store, folder)
        assert verify(folder).findings == []
        store = opened_kind(kind, folder, committed(at_ms, 10**9, first, first + 9))
        assert store.report.state == "reopened"
        assert store.pending_by_target() == ({f"r{again}-0": 3, f"r{again}-1": 3}, 3)
        assert taken(store, at_ms + 5) == made[:5]
        assert store.pending_by_target() == ({f"r{again}-0": 1, f"r{again}-1": 1}, 2)
        assert taken(store, at_ms + 9) == made[5:]
        store.advance(START_MS + at_ms + 100, 10**9)
        for name in ("one", "two", "three"):
            store._numbers.has(name)
        store.maintain(first + 9, 1000)
        assert store._numbers.by_name == {}
    store.close()


def test_no_number_is_freed_while_a_target_without_one_has_entries(tmp_path: Path) -> None:
    store = opened(tmp_path / "shard")
    store.put([entry(10, 0, "a"), entry(9000, 1, "b"), entry(9000, 2, "c")])
    assert len(taken(store, 10)) == 1
    store.maintain(3, 10)
    store.put([entry(9000, 3, "c")])
    assert store.pending_by_target() == ({"a": 0, "b": 1}, 2)


@every_kind
def test_a_target_without_a_number_gets_none_after_a_restart_either(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    store.put([entry(10, 0, "a"), entry(9000, 1, "b"), entry(9000, 2, "c")])
    store.flush(3)
    assert len(taken(store, 10)) == 1
    store.flush(3)
    store.close()
    store = opened_kind(kind, folder, committed(10, 0, 1, 3))
    store.put([entry(9000, 3, "c")])
    assert store.pending_by_target() == ({"b": 1}, 2)
    store.close()


@every_kind
def test_numbers_of_targets_in_memory_are_not_given_to_others(
    kind: StoreKind, tmp_path: Path
) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    waiting = [entry(50_000, 0, "a")]
    store.put([*waiting, *(entry(10, at, name) for at, name in enumerate("xyz", 1))])
    assert len(taken(store, 10)) == 3
    store.maintain(4, 10)
    waiting += [entry(50_000, at, name) for at, name in enumerate("bca", 4)]
    store.put(waiting[1:])
    store.flush(7)
    assert store.pending_by_target() == ({"a": 2, "b": 1}, 1)
    assert taken(store, 60_000) == waiting
    store.close()


@every_kind
def test_a_folder_opened_with_a_smaller_bound_keeps_the_names_that_it_has(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder, options=replace(TINY, most_names=10))
    store.put(named(20, targets=5))
    store.flush(20)
    store.close()
    store = opened_kind(kind, folder, committed(next_offset=20))
    assert store.pending_by_target() == ({f"t{at}": 4 for at in range(5)}, 0)
    store.put([entry(3000, 20, "new"), entry(3001, 21, "t4")])
    assert store.pending_by_target() == ({"t0": 4, "t1": 4, "t2": 4, "t3": 4, "t4": 5}, 1)
    store.close()


def test_a_memtable_that_never_fills_keeps_no_names_of_what_has_ended(tmp_path: Path) -> None:
    store = opened(tmp_path / "shard", options=replace(TINY, memtable_entries=10**6, most_names=5))
    for at in range(200):
        store.put([entry(3000 * at + 2500, at, f"t{at}")])
        assert taken(store, 3000 * at + 2500) == [entry(3000 * at + 2500, at, f"t{at}")]
        store.maintain(at + 1, 10)
        assert len(store._numbers.by_name) <= 5
    store.put([entry(10**6, 200, "orders")])
    assert store.pending_by_target() == ({"orders": 1}, 0)


def test_a_checkpoint_of_an_older_version_is_put_aside_and_the_shard_read_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "shard"
    store = opened(folder)
    store.put(entries(range(1, 11)))
    store.flush(10)
    store.close()
    data = (folder / CHECKPOINT).read_bytes()
    (folder / CHECKPOINT).write_bytes(b"KDPCKP03" + data[len(MAGIC) :])
    store = opened(folder, committed(next_offset=10))
    assert (store.report.state, store.covered) == ("put aside", 0)
    assert "another version" in store.report.detail
    store.close()


def rewritten(folder: Path, checkpoint: Checkpoint) -> list[str]:
    (folder / CHECKPOINT).write_bytes(checkpoint.to_bytes())
    return verify(folder).findings


def filled(folder: Path) -> TieredStore:
    store = opened(folder)
    store.put(named(20, targets=4))
    store.flush(20)
    store.close()
    return store


def test_wrong_counts_of_named_and_of_other_targets_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(folder)
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    checkpoint.counts.targets.others += 1
    assert rewritten(folder, checkpoint) == [
        "other targets have 10 pending entries, the checkpoint 11"
    ]
    checkpoint.counts.targets.others -= 1
    checkpoint.counts.targets.by_name["t1"] -= 2
    assert rewritten(folder, checkpoint) == ["t1 has 5 pending entries, the checkpoint 3"]


def test_wrong_bytes_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(folder)
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    checkpoint.counts.target_bytes.by_name["t1"] += 1
    checkpoint.counts.target_bytes.others -= 1
    assert rewritten(folder, checkpoint) == [
        "t1 has 37 pending bytes, the checkpoint 38",
        "other targets have 116 pending bytes, the checkpoint 115",
    ]


def test_a_name_before_a_body_that_has_a_number_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(folder)
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    numbers = checkpoint.counts.targets.numbers
    numbers.by_name["t3"] = 9
    checkpoint.counts.targets.by_name["t3"] = 1
    findings = rewritten(folder, checkpoint)
    assert "t3 has 5 pending entries, the checkpoint 1" in findings


def test_many_wrong_counts_are_not_all_told(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    store = opened(folder, options=replace(TINY, most_names=50))
    store.put(named(50, targets=50))
    store.flush(50)
    store.close()
    checkpoint = read_checkpoint(folder / CHECKPOINT)
    for name in checkpoint.counts.targets.by_name:
        checkpoint.counts.targets.by_name[name] += 1
    assert rewritten(folder, checkpoint)[-1] == "the counts of 40 more targets differ, too"
