"""Producers choose the names of targets: these take disk, not memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.ids import layout as run_names
from storage.ids.layout import MappedNames
from storage.ids.register import Register, open_register
from storage.options import IdOptions
from storage.store import Committed, Named

FAR_MS = 10**12
LONG_NAME_BYTES = 200
MANY = 20_000
SMALL = IdOptions(memtable_entries=500, replayed_offsets=1_000, write_entries=99, merge_entries=99)


def _opened(folder: Path, next_offset: int = 0, options: IdOptions = SMALL) -> Register:
    return open_register(folder, Committed(0, -1, 0, next_offset), options)


def _name(number: int) -> str:
    return f"{number:x}".ljust(LONG_NAME_BYTES, "-")


def _put(register: Register, offset: int, target: str) -> None:
    named = Named(offset, FAR_MS + offset, offset, offset, FAR_MS, target, 0)
    register.put(offset, b"order-%d" % offset, named)


def _fill(register: Register, count: int, modulo: int) -> None:
    for offset in range(count):
        _put(register, offset, _name(offset % modulo))
        register.add_tombstone(offset, (FAR_MS, offset), _name(offset % modulo))
        if offset % 50 == 0:
            register.maintain(offset, 0)
    register.flush(count, 0)


@given(st.lists(st.text(max_size=20)))
def test_names_are_read_as_they_were_written(names: list[str]) -> None:
    """Invariant: any list of texts is unchanged after mapping."""
    texts = [name.encode() for name in names]
    ends = np.cumsum([len(text) for text in texts]).astype("<i8")
    mapped = MappedNames(ends, memoryview(b"".join(texts)))
    assert [mapped[number] for number in range(len(mapped))] == names


def test_an_open_register_holds_no_names_in_memory(tmp_path: Path) -> None:
    few_counted = replace(SMALL, most_names=10)
    register = _opened(tmp_path / "ids", options=few_counted)
    _fill(register, MANY, MANY)
    register.close()
    tracemalloc.start()
    try:
        register = _opened(tmp_path / "ids", MANY, few_counted)
        while register.maintain(MANY, 0):
            pass
        held_bytes, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = sum(register.tombstones_by_target().by_name.values())
    assert counted + register.tombstones_by_target().others == MANY
    register.close()
    assert held_bytes < MANY * LONG_NAME_BYTES // 4


def test_a_merge_that_forgets_names_mixes_up_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_names, "MOST_REMEMBERED", 7)
    register = _opened(tmp_path / "ids")
    _fill(register, 5_000, 40)
    register.close()
    register = _opened(tmp_path / "ids", 5_000)
    ids = [b"order-%d" % offset for offset in range(5_000)]
    found = register.find(ids)
    assert [found[ident].target for ident in ids] == [_name(n % 40) for n in range(5_000)]
    assert register.tombstones_by_target().by_name == {_name(n): 125 for n in range(40)}
    register.close()


@pytest.mark.parametrize("is_tombstone", [False, True])
def test_names_count_as_memory_of_the_memtable(tmp_path: Path, *, is_tombstone: bool) -> None:
    register = _opened(tmp_path / "ids", options=IdOptions())

    def put(offset: int, target: str) -> None:
        if is_tombstone:
            register.add_tombstone(offset, (FAR_MS, offset), target)
        else:
            _put(register, offset, target)

    for offset in range(1_000):
        put(offset, "orders")
    alike_bytes = register.memtable_bytes
    for offset in range(1_000, 2_000):
        put(offset, _name(offset))
    assert register.memtable_bytes - 2 * alike_bytes > 900 * LONG_NAME_BYTES
    register.close()
