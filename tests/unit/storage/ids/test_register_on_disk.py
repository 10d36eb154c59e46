"""The register on disk as a shard uses it. test_register_files tests its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.ids.layout import MANIFEST, Hashing, IdHash, read_manifest
from storage.ids.memtable import MOST_INTERVALS, Links, rounded_end_ms
from storage.ids.register import Register, open_register, runs_to_merge
from storage.options import IdOptions
from storage.store import Committed, Key, Named

FAR_MS = 10**12
SMALL = IdOptions(memtable_entries=20, replayed_offsets=50, write_entries=7, merge_entries=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shard" / "ids"


def opened(
    folder: Path, next_offset: int = 0, ended: Key = (0, -1), floor: int = 0, **kwargs: Any
) -> Register:
    options = kwargs.pop("options", SMALL)
    return open_register(folder, Committed(*ended, floor, next_offset), options, **kwargs)


def pending(offset: int, target: str = "orders", kind: int = 0) -> Named:
    return Named(offset, FAR_MS + offset, offset, offset, FAR_MS, target, kind)


def ident(number: int) -> bytes:
    return b"order-%d" % number


def put_pending(register: Register, offsets: Iterable[int], every_step: int = 5) -> None:
    for offset in offsets:
        register.find([ident(offset)])
        register.put(offset, ident(offset), pending(offset))
        if offset % every_step == 0:
            register.maintain(offset, 0)


def work_through(register: Register, settled_offset: int, floor: int = 0) -> None:
    while register.maintain(settled_offset, floor):
        pass


def known(register: Register, count: int) -> dict[bytes, Named]:
    return register.find([ident(number) for number in range(count)])


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_flushed_is_known_after_a_restart(folder: Path) -> None:
    register = opened(folder)
    put_pending(register, range(100))
    register.flush(100, 0)
    register.close()
    register = opened(folder, next_offset=100)
    assert register.report.state == "reopened"
    assert register.covered == 100
    asked = [ident(number) for number in range(200)]
    assert register.find(asked) == {ident(number): pending(number) for number in range(100)}


def test_a_flush_writes_what_came_while_memory_was_given_back(folder: Path) -> None:
    register = opened(folder)
    for offset in range(25):
        register.put(offset, ident(offset), pending(offset))
    while not register._lsm.runs:
        register.maintain(25, 0)
    register.put(30, b"late", pending(30))
    register.flush(31, 0)
    assert register.covered == 31


def test_nothing_that_is_not_settled_reaches_the_disk(folder: Path) -> None:
    register = opened(folder)
    for offset in range(60):
        register.put(offset, ident(offset), pending(offset))
        register.maintain(min(offset, 30), 0)
    register.flush(30, 0)
    register.close()
    register = opened(folder, next_offset=30)
    assert register.covered <= 30
    assert all(named.latest < register.covered for named in known(register, 60).values())


def test_changes_of_one_offset_are_written_together_or_not_at_all(folder: Path) -> None:
    register = opened(folder)
    for offset in range(60):
        register.put(offset, ident(offset), pending(offset))
        register.maintain(offset, 0)
        register.add_tombstone(offset, (FAR_MS, offset), "orders")
    register.close()
    register = opened(folder, next_offset=60)
    assert len(known(register, 60)) == register.covered
    assert len(register.tombstones((0, 0), (FAR_MS, 99))) == register.covered > 0


def test_an_ingress_without_ids_is_covered_all_the_same(folder: Path) -> None:
    register = opened(folder)
    for settled in range(0, 10_000, 10):
        register.maintain(settled, 0)
        assert settled - register.covered <= SMALL.replayed_offsets
    assert files_of(folder) == ["manifest"]


def test_a_lone_id_does_not_hold_back_what_is_covered(folder: Path) -> None:
    register = opened(folder)
    register.put(3, b"lone", pending(3))
    for settled in range(0, 10_000, 10):
        register.maintain(settled, 0)
        assert settled - register.covered <= 2 * SMALL.replayed_offsets
    assert register.find([b"lone"])


def test_a_change_said_to_be_settled_cannot_come_later(folder: Path) -> None:
    register = opened(folder)
    register.put(5, b"a", pending(5))
    register.put(5, b"b", pending(5))
    with pytest.raises(ValueError, match="the last change was at 5"):
        register.put(4, b"c", pending(4))
    register.maintain(9, 0)
    with pytest.raises(ValueError, match="offsets below 9 are settled"):
        register.add_tombstone(8, (FAR_MS, 8), "orders")


ONE_HASH: Hashing = lambda idents: np.full(idents.sizes.size, 7, np.uint64)  # noqa: E731
hashes_of = IdHash(b"a seed")
TWO_BITS: Hashing = lambda idents: hashes_of(idents) & np.uint64(3 << 62)  # noqa: E731


@pytest.mark.parametrize("hashing", [ONE_HASH, TWO_BITS])
def test_ids_of_one_hash_are_never_mixed_up(folder: Path, hashing: Hashing) -> None:
    options = IdOptions(memtable_entries=20, write_entries=7, merge_entries=9, merged_runs=2)
    register = opened(folder, options=options, hashing=hashing)
    for offset in range(200):
        register.put(offset, ident(offset % 50), pending(offset))
        work_through(register, offset)
    register.flush(200, 0)
    asked = [ident(number) for number in range(80)]
    assert register.find(asked) == {ident(at % 50): pending(at) for at in range(150, 200)}
    work_through(register, 200)
    assert sum(run.size for run in register._lsm.runs) <= 50 + 2 * options.memtable_entries


def test_ids_of_any_size_and_their_neighbours_are_told_apart(folder: Path) -> None:
    ids = [b"", b"\0", b"\0\0", b"12345678", b"12345678\0", b"x" * 64, b"x" * 65, b"y" * 70_000]
    register = opened(folder)
    for offset, each in enumerate(ids):
        register.put(offset, each, pending(offset))
    register.flush(len(ids), 0)
    assert not register._lsm.active.ids
    assert register.find([*ids, b"12345678\0\0", b"x" * 63]) == {
        each: pending(offset) for offset, each in enumerate(ids)
    }


def test_runs_that_hold_a_newer_row_hide_the_older(folder: Path) -> None:
    register = opened(folder)
    for offset in range(300):
        register.put(offset, ident(offset % 30), pending(offset))
        work_through(register, offset)
    assert known(register, 30) == {ident(at % 30): pending(at) for at in range(270, 300)}
    assert sum(run.size for run in register._lsm.runs) <= 8 * 30


def test_ids_that_nobody_asks_for_again_leave_the_disk(folder: Path) -> None:
    register = opened(folder)
    most_bytes = 0
    for offset in range(3000):
        register.put(offset, ident(offset), Named(offset, offset, offset, offset, offset, "t", 0))
        register.advance(offset - 5, 0)
        work_through(register, offset, floor=offset - 10)
        most_bytes = max(most_bytes, sum(path.stat().st_blocks * 512 for path in folder.iterdir()))
    assert most_bytes < 200_000
    work_through(register, 3000, floor=2999)
    assert len(known(register, 3000)) < 100


def test_what_ends_while_nothing_comes_in_leaves_the_disk(folder: Path) -> None:
    register = opened(folder)
    put_pending(register, range(1000))
    for offset in range(1000, 1100):
        register.add_tombstone(offset, (FAR_MS, offset), "orders")
    register.flush(1100, 0)
    work_through(register, 1100)
    register.advance(2 * FAR_MS, 0)
    assert len(known(register, 1000)) == 1000
    for floor in range(0, 1100, 10):
        work_through(register, 1100, floor)
    assert sum(run.size for run in register._lsm.runs) <= SMALL.memtable_entries


def test_forgetting_what_an_id_was_last_does_not_bring_back_what_it_was_before(
    folder: Path,
) -> None:
    register = opened(folder)
    register.put(0, b"taken back", pending(0))
    register.put(1, b"another", pending(1))
    register.flush(2, 0)
    register.put(2, b"taken back", Named(2))
    register.flush(3, 3)
    assert register.find([b"taken back"]) in ({}, {b"taken back": Named(2)})


def test_tombstones_wait_on_disk_until_they_pass(folder: Path) -> None:
    register = opened(folder)
    for offset in range(500):
        register.add_tombstone(offset, (FAR_MS + 7 * offset % 500, offset), f"t{offset % 3}")
        register.maintain(offset, 0)
    register.flush(500, 0)
    register.close()
    register = opened(folder, next_offset=500)
    assert register.tombstones_by_target() == ({"t0": 167, "t1": 167, "t2": 166}, 0)
    assert register.tombstones((0, 0), (FAR_MS - 1, 0)) == set()
    for ms in range(500):
        key = (FAR_MS + ms, 10**6)
        assert len(register.tombstones((FAR_MS + ms - 1, 10**6), key)) == 1
        register.advance(*key)
        assert register.tombstones_by_target().total == 499 - ms
    work_through(register, 600, floor=600)
    assert files_of(folder) == ["manifest"]


def test_tombstones_of_more_targets_than_are_counted_by_name_are_counted_together(
    folder: Path,
) -> None:
    register = opened(folder, options=replace(SMALL, most_names=2))
    for offset, (ms, name) in enumerate([(1, "a"), (9, "b"), (9, "c")]):
        register.add_tombstone(offset, (FAR_MS + ms, offset), name)
    register.advance(FAR_MS + 1, 10)
    register.add_tombstone(3, (FAR_MS + 9, 3), "c")
    assert register.tombstones_by_target() == ({"a": 0, "b": 1}, 2)
    register.advance(FAR_MS + 9, 10)
    register.add_tombstone(4, (FAR_MS + 10, 4), "d")
    assert register.tombstones_by_target() == ({"d": 1}, 0)


def test_tombstone_of_what_was_asked_about_before_is_seen(folder: Path) -> None:
    register = opened(folder)
    register.add_tombstone(0, (FAR_MS + 2, 0), "orders")
    assert register.tombstones((0, 0), (FAR_MS + 5, 0)) == {(FAR_MS + 2, 0)}
    register.add_tombstone(1, (FAR_MS + 1, 1), "orders")
    assert register.tombstones((0, 0), (FAR_MS + 1, 5)) == {(FAR_MS + 1, 1)}
    register.advance(FAR_MS + 1, 1)
    assert register.tombstones((0, 0), (FAR_MS + 5, 0)) == {(FAR_MS + 2, 0)}


def test_links_are_known_after_a_restart(folder: Path) -> None:
    register = opened(folder)
    register.link(5, 2, 5, None)
    register.link(9, 5, 8, FAR_MS)
    register.flush(10, 0)
    register.link(12, 9, 12, None)
    assert [register.lowered(floor) for floor in (2, 4, 8, 9, 11)] == [2, 2, 2, 9, 9]
    register.close()
    register = opened(folder, next_offset=10)
    assert [register.lowered(floor) for floor in (2, 4, 8, 9, 11)] == [2, 2, 2, 9, 11]


def test_links_are_forgotten_below_the_floor_alone(folder: Path) -> None:
    register = opened(folder)
    for low, high in [(2, 4), (5, 8), (15, 18)]:
        register.link(20, low, high, None)
    register.maintain(30, 8)
    assert [register.lowered(floor) for floor in (4, 8, 18)] == [4, 5, 15]


def test_links_are_bounded_and_joined_where_it_costs_least() -> None:
    most = 3 * MOST_INTERVALS
    links = Links((100 * at, 100 * at + 10 + at % 7, 5) for at in range(most))
    assert len(links) <= MOST_INTERVALS
    assert all(links.lowered(100 * at + 5) <= 100 * at for at in range(most))
    assert links.lowered(100 * most) == 100 * most


def test_links_whose_time_has_passed_are_forgotten(folder: Path) -> None:
    register = opened(folder)
    register.advance(FAR_MS, 0)
    for at, lasts_ms in ((4, 5_000), (6, 20_000), (8, None)):
        register.link(at, at - 3, at, None if lasts_ms is None else FAR_MS + lasts_ms)
    assert register.lowered(8) == 1
    register.advance(FAR_MS + 5_000, 0)
    register.flush(9, 0)
    assert register.lowered(8) == 1
    register.close()
    register = opened(folder, next_offset=9, ended=(FAR_MS + 5_000, 0))
    register.advance(FAR_MS + 8_000, 0)
    register.maintain(9, 0)
    assert register.lowered(8) == 3
    register.advance(FAR_MS + 24_000, 0)
    register.maintain(9, 0)
    assert register.lowered(8) == 5


@pytest.mark.parametrize("lasts_ms", [0, 1, 999, 5_000, 86_400_000, 366 * 86_400_000])
def test_links_share_few_ends_and_last_little_longer(lasts_ms: int) -> None:
    steps_ms = range(0, lasts_ms, 1 + lasts_ms // 5_000)
    ends_ms = {rounded_end_ms(FAR_MS + ms, FAR_MS) for ms in steps_ms}
    assert len(ends_ms) <= 250
    until_ms = FAR_MS + lasts_ms
    assert 0 <= rounded_end_ms(until_ms, FAR_MS) - until_ms <= max(lasts_ms // 4, 1_024)


def test_kinds_are_found_once_and_as_they_are_now(folder: Path) -> None:
    register = opened(folder)
    for offset in range(100):
        register.put(offset, ident(offset % 40), pending(offset, kind=offset % 3))
        work_through(register, offset)
    now = {ident(at % 40): pending(at, kind=at % 3) for at in range(60, 100)}
    expected = {each: named for each, named in now.items() if named.kind & 2}
    assert Counter(register.of_kind(2)) == Counter(expected.items())
    register.advance(2 * FAR_MS, 0)
    assert not list(register.of_kind(2))


def test_sizes_decide_which_runs_are_merged() -> None:
    assert runs_to_merge([], 4, 64) == 0
    assert runs_to_merge([1, 1, 1], 4, 64) == 0
    assert runs_to_merge([1, 1, 1, 1], 4, 64) == 4
    assert runs_to_merge([100, 1, 1, 1, 1], 4, 64) == 4
    assert runs_to_merge([4, 1, 1, 1, 1], 4, 64) == 5
    assert runs_to_merge([32, 16, 8, 4, 2, 1], 4, 64) == 0
    assert runs_to_merge([32, 16, 8, 4, 2, 1], 4, 6) == 4


def test_a_step_is_refused_that_would_do_nothing() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        IdOptions(write_entries=0)
    with pytest.raises(ValueError, match="merged_runs"):
        IdOptions(merged_runs=1)


def test_each_folder_has_a_seed_of_its_own_which_it_keeps(tmp_path: Path) -> None:
    seeds: list[str] = []
    for at, name in enumerate(("one", "other", "one")):
        register = opened(tmp_path / name, next_offset=at)
        register.put(at, b"order-1", pending(at))
        register.flush(at + 1, 0)
        register.close()
        seeds.append(read_manifest(tmp_path / name / MANIFEST).seed)
    assert seeds[0] == seeds[2] != seeds[1]
