"""A kill during the storing of a slot: the slot is stored again."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from storage.folder import Files
from storage.opening import verify
from storage.tiered_store import TieredStore
from storage.wheel.wheel import SLOT
from tests.unit.storage.shards import START_MS, TINY, committed, entries, opened, taken

SPACIOUS = replace(TINY, slots=64)
FIELDS = SLOT.names or ()
TORN = [fields for count in range(1, len(FIELDS)) for fields in combinations(FIELDS, count)]


class Killed(BaseException):
    """End of the process."""


class TearingFiles(Files):
    """Files that set only the fields `torn` of the first stored slot, and end the process."""

    torn: tuple[str, ...] = ()

    def poke(self, cells: Any, at: Any, rows: Any) -> None:
        if not self.torn:
            super().poke(cells, at, rows)
            return
        for name in self.torn:
            cells[name][at[0]] = rows[name][0]
        raise Killed


def killed_in_flush(store: TieredStore, files: TearingFiles, torn: tuple[str, ...]) -> None:
    files.torn = torn
    with pytest.raises(Killed):
        store.flush(4)
    files.torn = ()
    store.close()


@pytest.mark.parametrize("torn", TORN, ids="-".join)
def test_slot_with_a_new_run_is_stored_again(tmp_path: Path, torn: tuple[str, ...]) -> None:
    folder, files = tmp_path / "shard", TearingFiles()
    made = entries([500, 900, 510, 950])
    store = opened(folder, options=SPACIOUS, files=files)
    store.put(made[:2])
    store.flush(2)
    store.put(made[2:])
    killed_in_flush(store, files, torn)
    assert verify(folder).findings == []
    store = opened(folder, committed(next_offset=4), options=SPACIOUS)
    assert (store.report.state, store.covered) == ("reopened", 4)
    assert taken(store, 1000) == sorted(made)
    store.close()


@pytest.mark.parametrize("torn", TORN, ids="-".join)
def test_slot_that_is_emptied_is_emptied_again(tmp_path: Path, torn: tuple[str, ...]) -> None:
    folder, files = tmp_path / "shard", TearingFiles()
    made = entries([500, 900, 5000, 6000])
    store = opened(folder, options=SPACIOUS, files=files)
    store.put(made)
    store.flush(4)
    assert taken(store, 700) == made[:1]
    store.advance(START_MS + 700, 4)
    killed_in_flush(store, files, torn)
    assert verify(folder).findings == []
    store = opened(folder, committed(700, 4, 0, 4), options=SPACIOUS)
    assert (store.report.state, store.covered) == ("reopened", 4)
    assert taken(store, 7000) == made[1:]
    store.close()
